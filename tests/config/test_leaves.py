"""Every config composes, is complete, passes the runner's checks and builds, under both hosts."""

import pytest
import yaml
from omegaconf import OmegaConf
from PIL import Image

from simco_methods.config.parse import complete, parse
from simco_methods.methods import find_method
from tests.helpers import BASELINES, CONFIGS, LEAVES, LINEAR, ROOT, compose_config, run_script

DATASETS = ("digits", "cifar10", "cifar100", "svhn", "stl10", "imagenet100", "custom")
NAMES = ("simco", "simmoco", "simmoco_v2plus", "mocov2", "mocov2plus")
# Experiments on the gradient's components, for the data sets of the paper's and for a quick look.
EXPERIMENTS = (
    "decoupled_moco",
    "simsiam_hardness",
    "byol_hardness",
    "supervised_hardness",
)
THEIRS = ("simclr", "mocov2plus", "byol", "simsiam", "nnclr", "barlow_twins", "vicreg")


def composed(leaf, folder):
    overrides = [f"data.train_path={folder}"] if leaf.startswith("custom") else []
    return compose_config(leaf, *overrides)


def make_folder(path):
    for name in ("cat", "dog"):
        (path / name).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(path / name / "0.png")
    return path


def build_all(leaves, folder):
    """Builds the model of every config; run in a process of its own for each host."""
    for leaf in leaves:
        cfg = parse(complete(composed(leaf, folder)), world_size=1)
        model = find_method(cfg.method)(cfg)
        assert model.cfg.method_kwargs == cfg.method_kwargs
        print("built", leaf)


def test_there_is_one_of_each():
    assert set(LEAVES) == {f"{dataset}/{name}" for dataset in DATASETS for name in NAMES} | {
        f"{dataset}/{name}" for dataset in ("digits", "cifar10", "cifar100") for name in EXPERIMENTS
    }
    assert set(LINEAR) == {f"{name}/linear" for name in set(DATASETS) - {"digits", "svhn"}}
    assert set(BASELINES) == {
        f"{dataset}/baselines/{name}"
        for dataset in ("digits", "cifar10", "cifar100")
        for name in THEIRS
    }


@pytest.mark.parametrize("leaf", BASELINES)
def test_baselines_differ_in_the_method_alone(leaf):
    dataset, _, name = leaf.split("/")
    cfg, own = compose_config(leaf), compose_config(f"{dataset}/mocov2plus")
    assert (cfg.method, cfg.name) == (name, f"baseline-{name}-{dataset}")
    for key in ("method", "name", "method_kwargs", "momentum"):
        cfg.pop(key, None), own.pop(key, None)
    assert cfg == own
    kwargs = compose_config(leaf).method_kwargs
    wide = name in ("barlow_twins", "vicreg")  # whose losses are over pairs of dimensions
    widths = {kwargs.proj_hidden_dim, kwargs.proj_output_dim}
    assert widths == ({256 if dataset == "digits" else 2048} if wide else {128})
    assert kwargs.get("temperature", 0.1) == 0.1


@pytest.mark.parametrize("leaf", LINEAR)
def test_linear_configs_evaluate_what_was_pretrained(leaf):
    cfg, pretraining = (compose_config(name) for name in (leaf, leaf.replace("linear", "simco")))
    assert cfg.backbone == pretraining.backbone and cfg.data == pretraining.data
    assert OmegaConf.missing_keys(cfg) - {"data.train_path"} == {"pretrained_feature_extractor"}
    with pytest.raises(ValueError, match="a config of solo-learn's main_linear.py"):
        complete(compose_config(leaf, "data.train_path=x"))


@pytest.mark.parametrize("leaf", LEAVES)
def test_composes_with_the_paper_s_settings(leaf, tmp_path):
    cfg = composed(leaf, make_folder(tmp_path / "images"))
    assert not OmegaConf.missing_keys(cfg)
    assert cfg.name == "{1}-{0}".format(*leaf.split("/"))
    method, symmetric = leaf.split("/")[1], leaf.endswith("plus")
    assert cfg.method == method.replace("_v2plus", "").replace("plus", "")
    assert cfg.method_kwargs.get("symmetric", False) == symmetric
    kwargs = cfg.method_kwargs
    if method in NAMES:
        assert kwargs.get("tau_alpha", kwargs.get("tau")) == 0.1
        assert kwargs.get("tau_beta", 1.0) == 1.0
    if method == "decoupled_moco":  # as it stands it is MoCo v2
        whole = {"negatives": "queue", "size": None, "order": "recent", "tau": 0.1}
        assert kwargs.vector == kwargs.scalar == whole
    if method == "supervised_hardness":
        assert (kwargs.tau_alpha, kwargs.tau_beta, kwargs.equal_weight) == (1.0, 1.0, False)
    else:
        assert (kwargs.proj_hidden_dim, kwargs.proj_output_dim) == (128, 128)
    if method in ("simsiam_hardness", "byol_hardness"):
        baseline = f"{leaf.split('/')[0]}/baselines/{method.split('_')[0]}"
        theirs = compose_config(baseline)
        assert {**theirs.method_kwargs, "weighted": True, "tau_beta": 0.1} == kwargs
        assert cfg.get("momentum") == theirs.get("momentum")
    elif "moco" in method:
        assert (cfg.momentum.base_tau, cfg.momentum.final_tau) == (0.99, 0.99)
    if not leaf.startswith("digits"):
        assert cfg.method_kwargs.get("queue_size", 65536) == 65536
        optimizer, scheduler, (view,) = cfg.optimizer, cfg.scheduler, cfg.augmentations
        assert (cfg.max_epochs, optimizer.name, optimizer.batch_size) == (200, "sgd", 256)
        assert (optimizer.lr, optimizer.weight_decay, complete(cfg).optimizer.kwargs.momentum) == (
            0.03,
            5e-4,
            0.9,
        )
        assert (scheduler.warmup_epochs, scheduler.warmup_start_lr, scheduler.min_lr) == (
            10,
            0.003,
            0,
        )
        assert (view.rrc.crop_min_scale, view.rrc.crop_max_scale) == (0.08, 1)
        assert list(view.color_jitter.values()) == [0.8, 0.4, 0.4, 0.4, 0.1]
        assert (view.grayscale.prob, view.horizontal_flip.prob, view.gaussian_blur.prob) == (
            0.2,
            0.5,
            0,
        )


@pytest.mark.parametrize("leaf", [*LEAVES, *LINEAR, *BASELINES])
def test_leaves_only_compose_and_name(leaf):
    text = (CONFIGS / f"{leaf}.yaml").read_text()
    assert text.startswith("# @package _global_\n")
    content = yaml.safe_load(text)
    # The queues and the widths of a small data set.
    small = leaf.startswith("digits/")
    assert {"defaults", "name"} <= set(content)
    assert set(content) <= {"defaults", "name"} | ({"method_kwargs"} if small else set())


@pytest.mark.parametrize(
    "host", ["builtin", pytest.param("solo-learn", marks=pytest.mark.solo_learn)]
)
def test_every_config_builds(host, tmp_path):
    folder = make_folder(tmp_path / "images")
    leaves = [*LEAVES, *(BASELINES if host == "solo-learn" else [])]
    code = f"from tests.config.test_leaves import build_all; build_all({leaves}, {str(folder)!r})"
    done = run_script("-c", code, cwd=ROOT, SIMCO_HOST=host)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("built") == len(leaves)
