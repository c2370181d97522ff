"""``simco-linear`` on a frozen encoder: what it trains, what it chooses, what it leaves behind."""

import csv
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from simco_methods import linear as command
from simco_methods.data import ImageSet
from simco_methods.data.loaders import EpochSampler
from simco_methods.data.splits import stratified
from simco_methods.encoder import load_encoder
from simco_methods.encoder.encoder import weights_digest
from simco_methods.evaluation.linear import choose, held_out, probe
from simco_methods.evaluation.linear_heads import INIT_STD, Heads
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.linear_training import StateFile, make_optimizer, train_epochs
from simco_methods.files import lock
from simco_methods.host.schedule import warmup_cosine
from simco_methods.settings import parse_settings
from tests.evaluation.conftest import digits_run  # noqa: F401
from tests.evaluation.probing import (
    interrupted,
    save_always,
    settings,
    sides,
    tiny_encoder,
)
from tests.helpers import run_script


def linear(source, *arguments):
    """``simco-linear SOURCE ARGUMENTS``, for two epochs of the digits."""
    defaults = ["epochs=2", "batch_size=64", "num_workers=0", "device=cpu"]
    return command.linear(
        source, parse_settings("simco-linear", LinearSettings, [*defaults, *arguments])
    )


# ---- the classifiers -----------------------------------------------------------------------------


def gaussians(count, classes=5, width=12, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(classes, width, generator=torch.Generator().manual_seed(9))
    labels = torch.arange(count) % classes
    features = centres[labels] + 2.0 * torch.randn(count, width, generator=generator)
    return features.to(dtype), labels


def in_order(features, labels, size, seed):
    def batches(epoch, first=0):
        sampler = EpochSampler(len(labels), size, seed, start=(epoch, first))
        for rows in sampler.indices().split(size):
            yield rows, features[rows], labels[rows]

    return batches


@pytest.mark.parametrize("optimizer", ["sgd", "lars", "adamw"])
def test_trained_together_is_trained_alone(optimizer):
    features, labels = gaussians(64, dtype=torch.float64)
    held = torch.arange(64) % 7 == 0
    s = settings(
        lr=[0.01, 0.2], weight_decay=[0.0, 0.1], epochs=3, warmup_epochs=1, optimizer=optimizer
    ).completed("custom")
    out = features[held], labels[held]
    heads = Heads(s.grid, 5, optimizer, gaussians(40, seed=1, dtype=torch.float64), held, out, 0.1)
    history, _ = train_epochs(heads, in_order(features, labels, 16, 0), s, 4, None)
    for number, (lr, decay) in enumerate(s.grid):
        for part, kept in enumerate((torch.ones(64, dtype=torch.bool), ~held)):
            alone = torch.nn.Linear(12, 5, dtype=torch.float64)
            first = torch.randn(
                5, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64
            )
            alone.load_state_dict(
                {"weight": first * INIT_STD, "bias": torch.zeros(5, dtype=torch.float64)}
            )
            groups = [
                {"params": [alone.weight], "lr": lr, "weight_decay": decay},
                {"params": [alone.bias], "lr": lr, "weight_decay": 0.0},
            ]
            trained = make_optimizer(optimizer, groups)
            step = 0
            for epoch in range(3):
                for rows, x, y in in_order(features, labels, 16, 0)(epoch):
                    for group in trained.param_groups:
                        group["lr"] = warmup_cosine(
                            lr, step, warmup_steps=4, total_steps=12, warmup_start_lr=lr / 4
                        )
                    mine = kept[rows]
                    loss = F.cross_entropy(alone(x[mine]), y[mine], label_smoothing=0.1)
                    trained.zero_grad()
                    loss.backward()
                    trained.step()
                    step += 1
            row = part * len(s.grid) + number
            torch.testing.assert_close(heads._parts[0][row].data, alone.weight.data)
            torch.testing.assert_close(heads._parts[1][row].data, alone.bias.data)
            measured, name = (heads.test, "acc1") if part == 0 else (heads.held_out, "held_acc1")
            right = (alone(measured[0]).argmax(dim=1) == measured[1]).double().mean()
            assert history[-1][name][number] == pytest.approx(100 * right.item())


def test_reaches_logistic_regression():
    features, labels = gaussians(1000)
    test = gaussians(2000, seed=1)
    s = settings(lr=[1.0], epochs=20).completed("custom")
    heads = Heads(s.grid, 5, "sgd", test)
    history, _ = train_epochs(heads, in_order(features, labels, 100, 0), s, 10, None)
    best = LogisticRegression(C=1e4, max_iter=500).fit(features, labels)
    assert history[-1]["acc1"][0] == pytest.approx(100 * best.score(*test), abs=1)
    assert 60 < history[-1]["acc1"][0] < 95  # neither at chance nor at what anything reaches


# ---- what is chosen ------------------------------------------------------------------------------


def test_the_choice_does_not_see_the_test_images():
    s = settings(lr=[1.0, 2.0, 3.0, 4.0])
    nan = float("nan")
    last = {
        "acc1": [90, 10, 20, nan],
        "held_acc1": [50, 60, 60, nan],
        "held_loss": [1, 2, 1.5, nan],
    }
    assert choose(last, s) == 2
    with pytest.raises(ValueError, match="lr=1, 2, 3, 4: the loss did not stay finite"):
        choose({key: [nan] * 4 for key in last}, s)


def test_a_stratified_share_is_held_out():
    train = sides(train=200).train
    held = held_out(train, settings(lr=[1.0, 2.0]).completed("custom")).numpy()
    assert np.bincount(train.labels[held]).tolist() == [5] * 4
    assert held_out(train, settings(lr=[1.0]).completed("custom")) is None


def test_of_few_images_one_is_held_out_of_each_class_that_has_two():
    wanted = settings(lr=[1.0, 2.0]).completed("custom")
    few = ImageSet(np.zeros((6, 4, 4, 3), np.uint8), np.array([0, 1, 1, 2, 2, 2]), ["a", "b", "c"])
    assert held_out(few, wanted).tolist() == [False, False, True, False, False, True]
    with pytest.raises(ValueError, match="one image of each class.* 2 classifiers .*give one lr"):
        held_out(few.select(np.array([0, 1, 3])), wanted)


def test_one_that_diverges_spoils_no_other(tmp_path):
    encoder, both = tiny_encoder(), sides(train=80)
    found = probe(encoder, both, settings(weight_decay=[1e6, 0.0]))
    assert [row["chosen"] for row in found.rows] == [False, True]
    assert np.isnan(found.rows[0]["acc1"]) and found.scores.acc1 == found.rows[1]["acc1"]
    with pytest.raises(ValueError, match="lr=0.3: the loss did not stay finite"):
        probe(encoder, both, settings(weight_decay=[1e6]))


# ---- on features of an encoder -------------------------------------------------------------------


def test_cached_plain_features_are_a_plain_loop():
    encoder, both = tiny_encoder(), sides()
    s = settings(augment=False, epochs=2)
    found = probe(encoder, both, s)
    features = torch.from_numpy(encoder.transform(both.train.images))
    labels = torch.from_numpy(both.train.labels)
    head = torch.nn.Linear(encoder.features, 4)
    first = torch.randn(4, encoder.features, generator=torch.Generator().manual_seed(3))
    head.load_state_dict({"weight": first * INIT_STD, "bias": torch.zeros(4)})
    trained = torch.optim.SGD(head.parameters(), lr=0.3 * 16 / 256, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(trained, 4)
    for epoch in range(2):
        for rows, x, y in in_order(features, labels, 16, 3)(epoch):
            trained.zero_grad()
            F.cross_entropy(head(x), y).backward()
            trained.step()
            schedule.step()
            del rows
    torch.testing.assert_close(found.head.weight, head.weight)
    logits = head(torch.from_numpy(encoder.transform(both.test.images)))
    right = (logits.argmax(dim=1).numpy() == both.test.labels).mean()
    assert found.scores.acc1 == pytest.approx(100 * right)


def test_streamed_is_cached_with_a_view_an_epoch():
    encoder, both = tiny_encoder(), sides()
    streamed = probe(encoder, both, settings())
    cached = probe(encoder, both, settings(views=3))
    one = probe(encoder, both, settings(views=1))
    torch.testing.assert_close(streamed.head.weight, cached.head.weight)
    assert not torch.allclose(streamed.head.weight, one.head.weight)


@pytest.mark.parametrize("precision", [32, "bf16"])
def test_the_encoder_stays_as_it_is_and_the_result_repeats(precision):
    encoder, both = tiny_encoder(), sides()
    encoder.train()
    before = weights_digest(encoder.backbone)
    s = settings(precision=precision, lr=[0.1, 0.3])
    first, again = (probe(encoder, both, s) for _ in range(2))
    assert weights_digest(encoder.backbone) == before
    assert encoder.training and all(p.grad is None for p in encoder.parameters())
    assert torch.equal(first.head.weight, again.head.weight)
    assert first.rows == again.rows and first.history == again.history
    other = probe(encoder, both, settings(precision=precision, lr=[0.1, 0.3], seed=4))
    assert other.rows != first.rows


def test_fewer_images_than_a_batch():
    found = probe(tiny_encoder(), sides(train=10), settings(batch_size=256))
    assert found.rows[0]["effective_lr"] == pytest.approx(0.3 * 10 / 256)


def test_the_fraction_is_the_same_for_everybody():
    labels = load_digits().target
    images = ImageSet(np.arange(len(labels)), labels, [str(i) for i in range(10)])
    # Recorded from train_test_split(train_size=share, stratify=labels, random_state=42), which is
    # solo-learn's data.fraction.
    recorded = {
        0.01: [1220, 1044, 111, 1164, 776, 1556, 1405, 1071, 1172, 1217, 1482, 1469],
        0.1: [1325, 836, 409, 1434, 1691, 1468, 1019, 283, 761, 1026, 113, 1230],
    }
    for share, rows in recorded.items():
        assert stratified(images, share).images[:12].tolist() == rows


# ---- interrupted ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["streamed", "cached", "lars"])
@pytest.mark.parametrize("at", [1, 4])
def test_continued_is_straight(kind, at, monkeypatch, tmp_path):
    encoder, both = tiny_encoder(), sides()
    changes = {"streamed": {}, "cached": {"views": 2}, "lars": {"optimizer": "lars"}}[kind]
    s = settings(lr=[0.1, 0.3], epochs=3, warmup_epochs=1.0, **changes)
    straight = probe(encoder, both, s)
    save_always(monkeypatch)
    interrupted(Heads, at, monkeypatch)
    state = StateFile(tmp_path / "state.pt", {})
    with pytest.raises(KeyboardInterrupt):
        probe(encoder, both, s, state)
    state.leave()
    assert state.read()["position"] == (at // 2, at % 2)
    taken = []
    step = Heads.step
    monkeypatch.setattr(
        Heads,
        "step",
        lambda self, number, *batch: (taken.append(number), step(self, number, *batch))[1],
    )
    continued = probe(encoder, both, s, StateFile(tmp_path / "state.pt", {}))
    assert taken == list(range(at, 6))
    assert torch.equal(straight.head.weight, continued.head.weight)
    assert straight.rows == continued.rows and straight.history == continued.history


# ---- the command ---------------------------------------------------------------------------------


EVALUATED = ["augment=false", "epochs=20", "lr=[10,1]"]


@pytest.fixture(scope="module")
def evaluated(digits_run, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("linear") / "out"
    linear(digits_run, f"out={folder}", *EVALUATED)
    return folder


def table(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_files(evaluated, digits_run):  # noqa: F811
    summary = json.loads((evaluated / "summary.json").read_text())
    assert sorted(path.name for path in evaluated.iterdir()) == [
        ".lock",
        "confusion.csv",
        "confusion.png",
        "head.safetensors",
        "history.csv",
        "per_class.csv",
        "results.csv",
        "summary.json",
    ]
    rows, history = table(evaluated / "results.csv"), table(evaluated / "history.csv")
    assert [row["lr"] for row in rows] == ["10.0", "1.0"] and len(history) == 20
    (chosen,) = [row for row in rows if row["chosen"] == "True"]
    assert float(chosen["acc1"]) == summary["acc1"] == float(history[-1]["acc1"])
    assert float(chosen["lr"]) == summary["chosen"]["lr"]
    assert summary["train_images"] == 200 and summary["encoder"]["method"] == "simco"
    assert summary["acc1"] > 30
    # The figures are of the classifier that is there.
    encoder, head = load_encoder(digits_run), load_file(evaluated / "head.safetensors")
    digits = parse_settings("simco-linear", LinearSettings, []).sides(encoder).test
    logits = torch.from_numpy(encoder.transform(digits.images)) @ head["weight"].T + head["bias"]
    right = logits.argmax(dim=1).numpy() == digits.labels
    assert summary["acc1"] == pytest.approx(100 * right.mean())
    assert summary["per_class"]["3"] == pytest.approx(100 * right[digits.labels == 3].mean())
    pixels = np.asarray(Image.open(evaluated / "confusion.png").convert("L"))
    assert pixels.shape[0] > 300 and pixels.std() > 10


def test_a_finished_folder_is_not_run_again(evaluated, digits_run, monkeypatch, capsys):  # noqa: F811
    same = [f"out={evaluated}", *EVALUATED]
    monkeypatch.setattr(Heads, "step", None)
    summary = linear(digits_run, *same)
    said = capsys.readouterr().out
    assert "is not run again" in said and f"linear accuracy {summary['acc1']:.2f} %" in said
    with pytest.raises(
        ValueError, match=r"another evaluation:\n  lr: \[10.0, 1.0\] there, \[0.2\]"
    ):
        linear(digits_run, *same, "lr=0.2")
    with pytest.raises(ValueError, match="holds something else; set out="):
        linear(digits_run, f"out={digits_run}")


def test_what_is_printed_and_where_it_goes(digits_run, capsys):  # noqa: F811
    linear(digits_run / "checkpoints" / "last.ckpt", "fraction=0.5", "augment=false", "lr=1,3")
    said = capsys.readouterr().out
    assert "micro_resnet, 16 features (simco, digits, 2 epochs)" in said
    assert "note: fraction=0.5: 100 of 200 training images" in said
    assert "learning rate: 0.25, 0.75 (lr x 64/256)" in said
    assert said.count(" chosen |") == 1 and "top-5" in said.splitlines()[-1]
    assert (digits_run / "checkpoints" / "last-linear-0.5" / "summary.json").is_file()


def test_two_processes_do_not_share_a_folder(digits_run, tmp_path):  # noqa: F811
    held = lock(tmp_path / ".lock")
    assert held is not None
    with pytest.raises(ValueError, match="another process is at work in"):
        linear(digits_run, f"out={tmp_path}")


def test_an_interrupted_command_goes_on(digits_run, monkeypatch, tmp_path, capsys):  # noqa: F811
    arguments = ["lr=0.3", f"out={tmp_path / 'out'}"]
    save_always(monkeypatch)
    interrupted(Heads, 4, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        linear(digits_run, *arguments)
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [".lock", "state.pt"]
    assert "interrupted; the same command goes on from" in capsys.readouterr().out
    with pytest.raises(ValueError, match="another evaluation:\n  seed: 0 there, 1 here"):
        linear(digits_run, *arguments, "seed=1")
    found = linear(digits_run, *arguments)
    assert not (tmp_path / "out" / "state.pt").exists()
    straight = linear(digits_run, "lr=0.3", f"out={tmp_path / 'straight'}")
    for summary in (found, straight):
        del summary["seconds"]
    assert found == straight
    weights = [load_file(tmp_path / f / "head.safetensors")["weight"] for f in ("out", "straight")]
    assert torch.equal(*weights)


BAD = [
    (["mode=linear"], "mode='linear': must be one of frozen, finetune"),
    (["lr=[]"], "lr=[]: must be a list of some"),
    (["lr=0"], "lr=0: must be a list, each a number from 0 to 1e+06, not 0"),
    (["lr=[0.1,high]"], "lr=[0.1, 'high']: must be a list, each a number from 0 to 1e+06, not 0"),
    (["precision=16"], "precision=16: must be 32 or bf16"),
    (["holdout=0.7"], "holdout=0.7: must be a number from 0 to 0.5, not 0"),
    (["mixup=0.2"], "mixup=0.2: is of mode=finetune, this is mode=frozen"),
    (["layer_decay=0.5"], "layer_decay=0.5: is of mode=finetune, this is mode=frozen"),
    (["warmup_epochs=2"], "warmup_epochs=2: must be below epochs=2"),
    (["views=2", "features=streamed"], "views=2: is of features=cached"),
    (["augment=false", "views=2"], "without augmentation there is one view of an image"),
    (["augment=false", "flip=0"], "flip=0: is of an augmentation; augment=false"),
    (["lr=1", "holdout=0.2"], "holdout=0.2: there is one lr and weight_decay to choose from"),
    (["mode=finetune", "views=2"], "views=2: is of mode=frozen, this is mode=finetune"),
    (["mode=finetune", "lr=[0.1,1]"], "lr=[0.1, 1]: mode=finetune trains one network"),
    (["mode=finetune", "batch_size=1"], "batch_size=1: mode=finetune needs 2 images or more"),
    (["mode=finetune", "cutmix=1", "batch_size=33"], "mixup and cutmix pair images"),
    (["fraction=0.05"], "one image of each class to train on, and 8 classifiers"),
    (["features=cached", "views=100000000"], "would take"),
]


@pytest.mark.parametrize("arguments, message", BAD, ids=[" ".join(a) for a, _ in BAD])
def test_settings_that_do_not_fit(arguments, message, digits_run, tmp_path):  # noqa: F811
    with pytest.raises(ValueError) as error:
        linear(digits_run, *arguments, f"out={tmp_path / 'out'}")
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "folders, message",
    [
        (["train/a", "test/a"], "all labelled images are of one class (a)"),
        (
            ["train/a", "train/b", "test/a", "test/c"],
            "class folders c, which the training images lack",
        ),
        (["train", "test"], "an evaluation needs a folder for each class"),
    ],
)
def test_images_that_do_not_fit(folders, message, digits_run, tmp_path):  # noqa: F811
    for name in folders:
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        for number in range(3):
            Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / name / f"{number}.png")
    paths = f"data.train_path={tmp_path / 'train'}", f"data.val_path={tmp_path / 'test'}"
    with pytest.raises((ValueError, OSError)) as error:
        linear(digits_run, "data.dataset=custom", *paths, f"out={tmp_path / 'out'}")
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


def test_training_images_among_the_test_images_are_noted(digits_run, tmp_path):  # noqa: F811
    for number, name in enumerate(["a/0.png", "a/1.png", "b/0.png", "b/1.png"]):
        for side in ("train", "test"):
            (tmp_path / side / name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / side / name)
    (tmp_path / "test" / "b" / "2.png").symlink_to(tmp_path / "train" / "b" / "1.png")
    paths = f"data.train_path={tmp_path / 'train'}", f"data.val_path={tmp_path / 'test'}"
    with pytest.raises(ValueError, match="digits are embedded and in no folder"):
        linear(digits_run, *paths)
    custom = "data.dataset=custom", *paths
    found = linear(digits_run, "lr=1", "epochs=1", *custom, f"out={tmp_path / 'out'}")
    assert found["notes"] == [
        "top-5 accuracies are left out: with 2 classes they are always 100 %",
        "1 of 5 test images are training images, too: accuracies are not of new images",
    ]


def test_a_summary_of_something_else(digits_run, tmp_path):  # noqa: F811
    for content in ("[]", "{}", '{"identity": 3}'):
        (tmp_path / "summary.json").write_text(content)
        with pytest.raises(ValueError, match="holds something else; set out=FOLDER"):
            linear(digits_run, f"out={tmp_path}")


def test_a_state_that_is_not_whole(digits_run, tmp_path):  # noqa: F811
    (tmp_path / "state.pt").write_bytes(b"PK half of it")
    with pytest.raises(ValueError, match=r"state.pt cannot be read; remove it to start anew"):
        linear(digits_run, f"out={tmp_path}")


@pytest.mark.slow
def test_as_a_command(digits_run, tmp_path):  # noqa: F811
    run = run_script("-m", "simco_methods.linear", digits_run, "lr=1", "epochs=1", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "linear accuracy " in run.stdout.splitlines()[-1]
    wrong = run_script("-m", "simco_methods.linear", digits_run, "lrs=1", cwd=tmp_path)
    assert wrong.returncode == 1 and "did you mean lr?" in wrong.stderr
