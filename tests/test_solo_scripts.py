"""solo-learn's own, unmodified scripts with the pack's methods and configs, as a user runs them."""

import importlib.util
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from simco_methods.host import HOST
from tests.helpers import CONFIGS, run_script

SOLO = importlib.util.find_spec("solo")
SCRIPTS = Path(SOLO.submodule_search_locations[0]).parent if SOLO else None
pytestmark = [
    pytest.mark.solo_learn,
    pytest.mark.skipif(
        SOLO and not (SCRIPTS / "main_pretrain.py").is_file(),
        reason="an installed solo-learn has no scripts: needs its checkout",
    ),
]

QUICK = [
    "accelerator=cpu",
    "precision=32-true",
    "optimizer.batch_size=8",
    "data.num_workers=0",
    "+num_sanity_val_steps=0",
]
# Every variant, on one backbone or another.
VARIANTS = {
    "simco": "resnet18",
    "simmoco": "resnet18_small",
    "simmoco_v2plus": "micro_resnet",
    "mocov2": "micro_resnet",
    "mocov2plus": "micro_resnet",
}

# Loaded by the interpreter before the script. solo-learn reads CIFAR-10 only from torchvision's
# files, whose checksums made-up ones cannot have; and main_knn.py and main_umap.py ask for a GPU.
ON_A_CPU = """
import importlib.util, sys

def patch(name, module):
    if name == "torchvision.datasets.cifar":
        module.check_integrity = lambda *_: True
        return
    import torch
    torch.Tensor.cuda = lambda self, *_, **__: self
    for kind in (torch.Tensor, torch.nn.Module):
        def to(self, *args, _to=kind.to, **options):
            args = ["cpu" if str(a).startswith("cuda") else a for a in args]
            return _to(self, *args, **options)
        kind.to = to

class Finder:
    pending = {"torchvision.datasets.cifar", "solo.utils.knn"}
    def find_spec(self, name, path, target=None):
        if name not in self.pending:
            return None
        self.pending.remove(name)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            patch(name, module)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text(ON_A_CPU)
    return folder


@pytest.fixture(scope="module")
def cifar(tmp_path_factory):
    """40 training images; the test images are the first 8 of them."""
    folder = tmp_path_factory.mktemp("cifar")
    (folder / "cifar-10-batches-py").mkdir()
    generator = np.random.default_rng(0)
    for name in ["test_batch"] + [f"data_batch_{i}" for i in range(1, 6)]:
        if name != "data_batch_1":  # which is the same as test_batch
            pixels = generator.integers(0, 255, (8, 3072), dtype=np.uint8)
        content = pickle.dumps({"data": pixels, "labels": list(range(8))})
        (folder / "cifar-10-batches-py" / name).write_bytes(content)
    labels = pickle.dumps({"label_names": list("abcdefghij")})
    (folder / "cifar-10-batches-py" / "batches.meta").write_bytes(labels)
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Class folders: train/a/0.png ...; 6 of them, as solo-learn's top-5 cannot do with fewer."""
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in "abcdef":
            (folder / split / name).mkdir(parents=True)
            for i in range(4):
                pixels = generator.integers(0, 255, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def script(site):
    """``script(name, *arguments, cwd=...)``: the output of a run that has to succeed."""

    def run(name, *arguments, cwd, fails=False, **env):
        launcher = ["-m", "simco_methods.solo_learn"] if name in ARGPARSE else []
        done = run_script(
            "-W", "ignore", *launcher, SCRIPTS / name, *arguments, cwd=cwd, path=[site], **env
        )
        output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, output[-6000:]
        return output

    return run


ARGPARSE = ("main_knn.py", "main_umap.py")


def data(folder):
    return [f"data.train_path={folder}", f"data.val_path={folder}"]


def only(paths):
    (path,) = paths
    return path


@pytest.fixture(scope="module", params=VARIANTS)
def pretrained(request, tmp_path_factory, script, cifar):
    """(folder, backbone, checkpoint) of a CIFAR-10 pretraining by main_pretrain.py."""
    leaf, backbone = request.param, VARIANTS[request.param]
    cwd = tmp_path_factory.mktemp(leaf)
    arguments = [*data(cifar), *QUICK, f"backbone.name={backbone}", "max_epochs=1"]
    script("main_pretrain.py", "--config-name", f"cifar10/{leaf}", *arguments, cwd=cwd)
    checkpoint = only((cwd / "trained_models").rglob("*.ckpt"))
    assert (checkpoint.parent / "args.json").is_file()
    return cwd, backbone, checkpoint


class TestEveryScript:
    def test_linear(self, pretrained, script, cifar):
        cwd, backbone, checkpoint = pretrained
        script(
            "main_linear.py",
            *("--config-name", "cifar10/linear", *data(cifar), *QUICK),
            *(f"backbone.name={backbone}", f"pretrained_feature_extractor='{checkpoint}'"),
            *("max_epochs=1", "+limit_train_batches=2"),
            cwd=cwd,
        )
        # main_linear.py says nothing of weights that it does not find, so they are compared.
        trained = only((cwd / "trained_models" / "linear").rglob("*.ckpt"))
        one, other = (torch.load(f, weights_only=True)["state_dict"] for f in (checkpoint, trained))
        frozen = {key for key in other if key.startswith("backbone.")}
        assert frozen == {key for key in one if key.startswith("backbone.")}
        assert all(torch.equal(one[key], other[key]) for key in frozen)

    def test_knn(self, pretrained, script, cifar):
        cwd, _, checkpoint = pretrained
        output = script(
            "main_knn.py",
            *("--dataset", "cifar10", "--train_data_path", cifar, "--val_data_path", cifar),
            *("--pretrained_checkpoint_dir", checkpoint.parent, "--batch_size", 8),
            *("--num_workers", 0, "--k", 1, 2, "--temperature", 0.1),
            *("--feature_type", "backbone", "projector"),
            *("--distance_function", "euclidean", "cosine"),
            cwd=cwd,
        )
        # Each test image is its own nearest neighbour.
        assert output.count("Result: acc@1=") == 8
        assert output.count("Result: acc@1=100.0") >= 4

    # Two of them: to compile UMAP takes longer than all else.
    @pytest.mark.parametrize("pretrained", ["simco", "mocov2plus"], indirect=True)
    def test_umap(self, pretrained, script, cifar):
        pytest.importorskip("umap", reason="main_umap.py needs umap-learn (the extra umap)")
        cwd, _, checkpoint = pretrained
        script(
            "main_umap.py",
            *("--dataset", "cifar10", "--train_data_path", cifar, "--val_data_path", cifar),
            *("--pretrained_checkpoint_dir", checkpoint.parent, "--batch_size", 8),
            *("--num_workers", 0),
            cwd=cwd,
        )
        assert all(f.read_bytes()[:5] == b"%PDF-" for f in cwd.glob("im100_*_umap.pdf"))
        assert len(list(cwd.glob("im100_*_umap.pdf"))) == 2


@pytest.mark.parametrize(
    "method", ["decoupled_moco", "simsiam_hardness", "byol_hardness", "supervised_hardness"]
)
def test_the_experiments_train(method, script, cifar, tmp_path):
    arguments = [*data(cifar), *QUICK, "backbone.name=micro_resnet", "max_epochs=1"]
    script("main_pretrain.py", "--config-name", f"cifar10/{method}", *arguments, cwd=tmp_path)
    assert only((tmp_path / "trained_models" / method).rglob("*.ckpt"))


@pytest.mark.parametrize("method", ["simco", "simmoco", "mocov2"])
def test_a_custom_folder_by_the_path_of_the_config(method, script, images, tmp_path):
    script(
        "main_pretrain.py",
        *("--config-path", CONFIGS / "custom", "--config-name", f"{method}.yaml", *QUICK),
        *(f"data.train_path={images / 'train'}", f"data.val_path={images / 'val'}"),
        *("augmentations.0.crop_size=32", "backbone.name=micro_resnet", "max_epochs=1"),
        cwd=tmp_path,
    )
    assert only((tmp_path / "trained_models" / method).rglob("*.ckpt"))


@pytest.mark.parametrize(
    "name", ["simclr", "mocov2plus", "byol", "simsiam", "nnclr", "barlow_twins", "vicreg"]
)
def test_baselines(name, script, cifar, tmp_path):
    output = script(
        "main_pretrain.py",
        *("--config-name", f"cifar10/baselines/{name}", *data(cifar), *QUICK),
        *("backbone.name=micro_resnet", "max_epochs=1", "+limit_train_batches=2"),
        cwd=tmp_path,
    )
    assert "max_epochs=1` reached" in output
    assert only((tmp_path / "trained_models" / name).rglob("*.ckpt"))


def test_checkpoints_of_the_runner(script, images, tmp_path):
    """Trained without solo-learn's classes, evaluated by its scripts."""
    folders = [f"data.train_path={images / 'train'}", f"data.val_path={images / 'val'}"]
    settings = [*folders, *QUICK, "backbone.name=micro_resnet", "max_epochs=1"]
    done = run_script(
        *("-m", "simco_methods.pretrain", "--config-name", "custom/simmoco", *settings[:-3]),
        *("backbone.name=micro_resnet", "max_epochs=1", "augmentations.0.crop_size=32"),
        "output_dir=run",
        cwd=tmp_path,
        SIMCO_HOST="builtin",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    checkpoint = tmp_path / "run" / "checkpoints" / "last.ckpt"
    script(
        *("main_linear.py", "--config-name", "custom/linear", *settings),
        f"pretrained_feature_extractor={checkpoint}",
        cwd=tmp_path,
    )
    output = script(
        *("main_knn.py", "--dataset", "custom", "--pretrained_checkpoint_dir", checkpoint.parent),
        *("--train_data_path", images / "train", "--val_data_path", images / "train"),
        *("--batch_size", 8, "--num_workers", 0, "--k", 1, "--temperature", 0.1),
        *("--feature_type", "backbone", "--distance_function", "euclidean"),
        cwd=tmp_path,
    )
    assert "Result: acc@1=100.0" in output


class TestResume:
    SETTINGS = [
        *QUICK,
        "backbone.name=micro_resnet",
        "max_epochs=3",
        "+accumulate_grad_batches=2",
        "+limit_train_batches=4",
        "method_kwargs.queue_size=60",
        "momentum.final_tau=1.0",
    ]

    @staticmethod
    def state(folder, epoch):
        (path,) = (folder / "trained_models").rglob(f"*ep={epoch}.ckpt")
        checkpoint = torch.load(path, weights_only=True)
        pointer = checkpoint["state_dict"]["queues.0.pointer"]
        (schedule,) = checkpoint["lr_schedulers"]
        return checkpoint["global_step"], int(pointer), schedule["last_epoch"], path

    def test_from_a_named_checkpoint(self, script, cifar, tmp_path):
        base = ["--config-name", "cifar10/mocov2", *data(cifar), *self.SETTINGS]
        base += ["+checkpoint.keep_prev=true", "auto_resume.enabled=false"]
        straight, resumed = tmp_path / "straight", tmp_path / "resumed"
        for folder in (straight, resumed):
            folder.mkdir()
        script("main_pretrain.py", *base, cwd=straight)
        first = self.state(straight, 0)[-1]
        script("main_pretrain.py", *base, f"resume_from_checkpoint='{first}'", cwd=resumed)
        assert [p.name[-9:] for p in sorted((resumed / "trained_models").rglob("*.ckpt"))] == [
            "ep=1.ckpt",
            "ep=2.ckpt",
        ]
        for epoch in (1, 2):
            assert self.state(resumed, epoch)[:3] == self.state(straight, epoch)[:3]
        assert self.state(straight, 2)[:2] == (6, 3 * 4 * 8 % 60)

    def test_auto_resume_takes_its_own_run_only(self, script, cifar, tmp_path):
        def run(*changes):
            settings = [f"--config-name=cifar10/{changes[0]}", *data(cifar), *QUICK, *changes[1:]]
            settings += ["backbone.name=micro_resnet", "max_epochs=1", "+limit_train_batches=2"]
            return script("main_pretrain.py", *settings, cwd=tmp_path)

        said = "Resuming from previous checkpoint"
        assert said not in run("simco", "method_kwargs.tau_beta=1.0")
        assert said not in run("simco", "method_kwargs.tau_beta=2.0")
        assert said in run("simco", "method_kwargs.tau_beta=1.0")


@pytest.mark.skipif(HOST != "solo-learn", reason="of the solo-learn host")
@pytest.mark.parametrize(
    "key, value",
    [
        ("method_kwargs.tau_beta", 2.0),
        ("momentum.base_tau", 0.5),
        ("seed", 6),
        ("augmentations.0.rrc.crop_min_scale", 0.2),
        ("scheduler.warmup_epochs", 1),
        ("optimizer.kwargs.momentum", 0.5),
        ("accumulate_grad_batches", 4),
        ("gradient_clip_val", 1.0),
        ("devices", "2"),
        ("data.fraction", 0.5),
    ],
)
def test_what_auto_resume_compares(key, value, tmp_path):
    from omegaconf import OmegaConf
    from solo.args.pretrain import parse_cfg
    from solo.utils.auto_resumer import AutoResumer

    from simco_methods.methods import find_method, register
    from tests.helpers import compose_config

    def built(*changes):
        cfg = parse_cfg(compose_config("cifar10/simmoco", "backbone.name=micro_resnet"))
        for name, setting in changes:
            OmegaConf.update(cfg, name, setting, force_add=True)
        find_method("simmoco")(cfg)  # which completes the config, as main_pretrain.py does
        return cfg

    register()
    (tmp_path / "run.ckpt").touch()
    (tmp_path / "args.json").write_text(json.dumps(OmegaConf.to_container(built())))
    resumer = AutoResumer(tmp_path)
    assert resumer.find_checkpoint(built())[0] == tmp_path / "run.ckpt"
    assert resumer.find_checkpoint(built((key, value)))[0] is None
    assert len(AutoResumer.SHOULD_MATCH) == len(set(AutoResumer.SHOULD_MATCH))


class TestOptions:
    def test_wandb_offline_umap_and_augmentations(self, script, cifar, tmp_path):
        pytest.importorskip("wandb", reason="needs the extra wandb")
        pytest.importorskip("umap", reason="auto_umap needs umap-learn (the extra umap)")
        output = script(
            "main_pretrain.py",
            *("--config-name", "cifar10/simmoco", *data(cifar), *QUICK, "max_epochs=1"),
            *("backbone.name=micro_resnet", "wandb.enabled=true", "wandb.offline=true"),
            *("+auto_umap.enabled=true", "debug_augmentations=true"),
            cwd=tmp_path,
        )
        assert "Transforms:" in output and "RandomResizedCrop" in output
        assert list((tmp_path / "wandb").glob("offline-run-*"))
        checkpoint = only((tmp_path / "trained_models").rglob("*.ckpt"))
        assert json.loads((checkpoint.parent / "args.json").read_text())["wandb_run_id"]
        assert only((tmp_path / "auto_umap").rglob("*.pdf"))

    def test_h5(self, script, images, tmp_path):
        h5py = pytest.importorskip("h5py", reason="needs the extra h5")
        with h5py.File(tmp_path / "train.h5", "w") as file:
            for path in sorted((images / "train").rglob("*.png")):
                content = io.BytesIO(path.read_bytes()).getvalue()
                file[f"{path.parent.name}/{path.name}"] = np.frombuffer(content, dtype=np.uint8)
        script(
            "main_pretrain.py",
            *("--config-name", "imagenet100/simco", *QUICK, "max_epochs=1", "data.format=h5"),
            *("data.train_path=train.h5", "data.val_path=null", "backbone.name=micro_resnet"),
            cwd=tmp_path,
            HOME=str(tmp_path),  # solo-learn writes a list of the images there
        )
        assert only((tmp_path / "trained_models").rglob("*.ckpt"))

    @pytest.mark.skipif(
        importlib.util.find_spec("nvidia") is not None
        and importlib.util.find_spec("nvidia.dali") is not None,
        reason="DALI is there",
    )
    def test_dali_is_refused_by_solo_learn_itself(self, script, images, tmp_path):
        output = script(
            "main_pretrain.py",
            *("--config-name", "custom/simco", *QUICK, "max_epochs=1", "data.format=dali"),
            *(f"data.train_path={images / 'train'}", f"data.val_path={images / 'val'}"),
            "backbone.name=micro_resnet",
            cwd=tmp_path,
            fails=True,
        )
        assert "Dali is not currently avaiable" in output
