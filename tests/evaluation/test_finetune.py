"""``simco-linear mode=finetune``: the network that is trained, its layers, what is left of it."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from simco_methods import linear as command
from simco_methods.data.loaders import EpochSampler
from simco_methods.encoder import Card, load_encoder
from simco_methods.encoder.encoder import weights_digest
from simco_methods.encoder.loading import build
from simco_methods.evaluation import finetune as module
from simco_methods.evaluation.finetune import drawn_by, finetune, layer_groups, trainable_backbone
from simco_methods.evaluation.linear_heads import INIT_STD
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.linear_training import StateFile, Streamed
from simco_methods.settings import parse_settings
from tests.evaluation.conftest import digits_run  # noqa: F401
from tests.evaluation.probing import interrupted, save_always, settings, sides, tiny_encoder
from tests.helpers import TINY_VIT


def tuned(**changes):
    return settings(**{"mode": "finetune", "epochs": 2, **changes})


# ---- layers --------------------------------------------------------------------------------------


def card(name, **kwargs):
    return Card(name, kwargs, False, None)


def rates(name, decay, **kwargs):
    """Each parameter's learning rate and weight decay, the head's above it."""
    with torch.device("meta"):
        backbone, head = build(card(name, **kwargs)), nn.Linear(8, 4)
    groups = layer_groups(card(name), backbone, head, 1.0, 0.05, decay)
    names = {id(p): n for n, p in backbone.named_parameters()}
    names |= {id(p): f"head.{n}" for n, p in head.named_parameters()}
    found = {names[id(p)]: (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}
    assert len(found) == len(names) == sum(len(g["params"]) for g in groups)
    return found


@pytest.mark.parametrize("name", ["resnet18", "resnet50_small", "micro_resnet"])
def test_a_stage_of_a_resnet_is_a_layer(name):
    found = rates(name, 0.5)
    for key, (lr, decay) in found.items():
        stage = {"conv1": 0, "bn1": 0, "head": 5}.get(key.split(".")[0])
        stage = int(key[5]) if stage is None else stage
        assert lr == pytest.approx(0.5 ** (5 - stage)), key
        vector = "bn" in key or key.endswith("bias") or "downsample.1" in key
        assert decay == (0 if vector else 0.05), key


def test_a_block_of_a_transformer_is_a_layer():
    found = rates("vit_tiny", 0.5)
    layers = {"patch_embed.proj.weight": 0, "pos_embed": 0, "cls_token": 0, "head.weight": 13}
    layers |= {f"blocks.{i}.mlp.fc1.weight": i + 1 for i in range(12)} | {"norm.weight": 12}
    for key, layer in layers.items():
        assert found[key][0] == pytest.approx(0.5 ** (13 - layer)), key
    assert found["pos_embed"][1] == found["cls_token"][1] == found["norm.weight"][1] == 0
    swin = rates("swin_tiny", 0.5)
    order = ["patch_embed.proj.weight"]
    order += [f"layers.{i}.blocks.0.mlp.fc1.weight" for i in range(4)] + ["head.weight"]
    lrs = [swin[key][0] for key in order]
    assert lrs == sorted(lrs) and len(set(lrs)) == 6 and lrs[-1] == 1


def test_without_layer_decay_all_rates_are_one(caplog):
    assert {lr for lr, _ in rates("resnet18", 1.0).values()} == {1.0}
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    head = nn.Linear(4, 2)
    assert {g["lr"] for g in layer_groups(card("plain"), plain, head, 2.0, 0.0, 1.0)} == {2.0}
    vit = rates("vit_tiny", 1.0)
    assert vit["pos_embed"] == vit["norm.weight"] == (1.0, 0) and vit["head.weight"] == (1.0, 0.05)
    assert not caplog.messages
    with pytest.raises(ValueError, match="layer_decay=0.5: the layers of plain are not known"):
        layer_groups(card("plain"), plain, head, 2.0, 0.0, 0.5)


# ---- training ------------------------------------------------------------------------------------


def test_is_a_plain_loop():
    encoder, both = tiny_encoder(), sides()
    s = tuned(label_smoothing=0.1, weight_decay=[0.01], layer_decay=0.5, warmup_epochs=0)
    before = weights_digest(encoder.backbone)
    found = finetune(encoder, both, s)
    assert weights_digest(encoder.backbone) == before and not encoder.training
    backbone, head = copy.deepcopy(encoder.backbone), nn.Linear(encoder.features, 4)
    nn.init.normal_(head.weight, std=INIT_STD, generator=torch.Generator().manual_seed(3))
    nn.init.zeros_(head.bias)
    net = nn.Sequential(backbone, head).train()
    lr, groups = 0.3 * 16 / 256, []
    for name, parameter in net.named_parameters():
        top = name.startswith("1.")
        stage = 5 if top else int(name[7]) if name.startswith("0.layer") else 0
        groups.append(
            {
                "params": [parameter],
                "lr": lr * 0.5 ** (5 - stage),
                "weight_decay": 0.01 if parameter.ndim > 1 else 0.0,
            }
        )
    trained = torch.optim.SGD(groups, lr=lr, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(trained, 4)
    views = Streamed(encoder, both.train, both.test, s.completed("custom"), 16)
    for epoch in range(2):
        order = EpochSampler(44, 16, 3, start=(epoch, 0)).indices()
        for rows, (indices, images, labels) in zip(order.split(16), views(epoch), strict=True):
            assert torch.equal(rows, indices)
            trained.zero_grad()
            F.cross_entropy(net(images), labels, label_smoothing=0.1).backward()
            trained.step()
            schedule.step()
    for (name, mine), other in zip(
        found.backbone.state_dict().items(), backbone.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(mine, other, msg=name)
    torch.testing.assert_close(found.head.weight, head.weight)
    assert weights_digest(found.backbone) != before


def test_mixed_images_and_labels(monkeypatch):
    seen = []

    def cross_entropy(logits, targets, label_smoothing):
        seen.append((targets, label_smoothing))
        return F.nll_loss(logits.log_softmax(1), targets.argmax(dim=1))

    monkeypatch.setattr(module.F, "cross_entropy", cross_entropy)
    both = sides(train=13)  # an odd number, of which mixing takes an even one
    finetune(tiny_encoder(), both, tuned(mixup=0.4, cutmix=1.0, label_smoothing=0.2, epochs=4))
    targets = torch.stack([targets for targets, _ in seen])
    assert targets.shape == (4, 12, 4) and {smoothing for _, smoothing in seen} == {0.0}
    torch.testing.assert_close(targets.sum(dim=2), torch.ones(4, 12))
    assert targets.min() == pytest.approx(0.05)  # 0.2 of smoothing over four classes
    assert ((targets > 0.06) & (targets < 0.84)).any()  # neither of one class nor of none


@pytest.mark.parametrize("at", [1, 2])
def test_continued_is_straight(at, monkeypatch, tmp_path):
    encoder, both = tiny_encoder(), sides()
    s = tuned(mixup=0.2, cutmix=1.0, drop_path=0.3, optimizer="adamw", lr=[0.01])
    straight = finetune(encoder, both, s)
    without = finetune(encoder, both, tuned(mixup=0.2, cutmix=1.0, optimizer="adamw", lr=[0.01]))
    assert weights_digest(without.backbone) != weights_digest(straight.backbone)
    save_always(monkeypatch)
    interrupted(module._Network, at, monkeypatch)
    state = StateFile(tmp_path / "state.pt", {})
    with pytest.raises(KeyboardInterrupt):
        finetune(encoder, both, s, state)
    state.leave()
    assert state.read()["position"] == (at // 2, at % 2)
    torch.rand(5), np.random.rand(5)  # another process would be elsewhere in these
    continued = finetune(encoder, both, s, StateFile(tmp_path / "state.pt", {}))
    assert weights_digest(straight.backbone) == weights_digest(continued.backbone)
    assert torch.equal(straight.head.weight, continued.head.weight)
    assert straight.rows == continued.rows and straight.history == continued.history


def test_draws_are_left_as_they_were():
    torch.manual_seed(1), np.random.seed(1)
    expected = torch.rand(2).tolist(), np.random.rand(2).tolist()
    torch.manual_seed(1), np.random.seed(1)
    drawn = []
    for seed in (5, 5, 6):
        with drawn_by(seed, torch.device("cpu")):
            drawn.append((torch.rand(2).tolist(), np.random.rand(2).tolist()))
    assert (torch.rand(2).tolist(), np.random.rand(2).tolist()) == expected
    assert drawn[0] == drawn[1] and drawn[0][0] != drawn[2][0] and drawn[0][1] != drawn[2][1]


def test_stochastic_depth_keeps_the_weights():
    encoder = tiny_encoder(TINY_VIT)
    images = torch.randn(2, 3, 16, 16)
    made = trainable_backbone(encoder, 0.5)
    assert torch.equal(made.eval()(images), encoder(images))
    assert not torch.equal(made.train()(images), encoder(images))
    resnet = tiny_encoder({"name": "resnet18"}, size=32)
    with pytest.raises(ValueError, match="drop_path=0.5: resnet18 has none"):
        trainable_backbone(resnet, 0.5)


def test_a_loss_that_is_not_finite_is_said():
    with pytest.raises(ValueError, match="lr=100000: the loss did not stay finite"):
        finetune(tiny_encoder(), sides(), tuned(lr=[1e5], weight_decay=[1e5], epochs=8))


# ---- the command ---------------------------------------------------------------------------------


def test_what_is_left_is_an_encoder(digits_run, tmp_path, capsys):  # noqa: F811
    arguments = ["mode=finetune", "epochs=12", "batch_size=50", "num_workers=0", "device=cpu"]
    s = parse_settings("simco-linear", LinearSettings, [*arguments, "lr=1", f"out={tmp_path}"])
    summary = command.linear(digits_run, s)
    said = capsys.readouterr().out
    assert f"\nfinetuned accuracy {summary['acc1']:.2f} %, top-5 " in said and summary["acc1"] > 30
    names = {path.name for path in tmp_path.iterdir()}
    assert {"model.safetensors", "history.csv", "summary.json"} <= names
    assert not {"head.safetensors", "state.pt"} & names
    encoder = load_encoder(tmp_path)
    assert encoder.card.accuracies["finetune_acc1"] == summary["acc1"]
    assert encoder.card.classes == [str(i) for i in range(10)]
    from safetensors.torch import load_file

    weights = load_file(tmp_path / "model.safetensors")
    test = s.sides(load_encoder(digits_run)).test
    features = torch.from_numpy(encoder.transform(test.images))
    logits = features @ weights["head.weight"].T + weights["head.bias"]
    right = logits.argmax(dim=1).numpy() == test.labels
    assert summary["acc1"] == pytest.approx(100 * right.mean())
    assert "is not run again" not in capsys.readouterr().out
    command.linear(digits_run, s)
    assert "is not run again" in capsys.readouterr().out


@pytest.mark.parametrize("argument", ["layer_decay=0.5", "drop_path=0.2"])
def test_a_backbone_that_has_no_such_thing(argument, digits_run, tmp_path, monkeypatch):  # noqa: F811
    def plain(self, source):
        encoder = tiny_encoder({"name": "resnet18"}, size=16)
        del encoder.backbone.layer4  # as if it were no ResNet
        return encoder

    monkeypatch.setattr(LinearSettings, "load", plain)
    given = ["mode=finetune", argument, "data.dataset=digits", f"out={tmp_path / 'out'}"]
    with pytest.raises(ValueError, match=f"{argument}: .*resnet18"):
        command.linear(digits_run, parse_settings("simco-linear", LinearSettings, given))
    assert not (tmp_path / "out").exists()
