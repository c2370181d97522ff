"""Method, backbone, optimiser and Lightning's arguments: refused with the rest of the config."""

import inspect

import pytest
import torch
from lightning.pytorch import Trainer
from omegaconf import OmegaConf

from simco_methods.config.method import refusals_named
from simco_methods.config.parse import complete, parse
from simco_methods.config.schema import TRAINER_KEYS
from simco_methods.config.trainer_keys import REFUSED
from simco_methods.methods import find_method
from tests.helpers import compose_config


def config(leaf="digits/simco", **changes):
    cfg = compose_config(leaf)
    for key, value in changes.items():
        OmegaConf.update(cfg, key.replace("__", "."), value, merge=False, force_add=True)
    return cfg


def refusal(leaf="digits/simco", **changes):
    with pytest.raises(ValueError) as caught:
        complete(config(leaf, **changes))
    return str(caught.value)


def test_faults_of_every_part_are_in_one_list():
    cfg = config(
        "digits/decoupled_moco",
        devices=[0, 0],
        precision="8",
        strategy="ddp_spawn",
        barebones=True,
        method_kwargs={"tau": 0.1, "queue_size": "x", "vector": {"order": "new", "tua": 1}},
        momentum__base_tau=0.999,
        momentum__final_tau=0.99,
        backbone={
            "name": "resnet18_small",
            "kwargs": {"stem_paddding": 1, "depth": 9, "groups": 3},
        },
        optimizer__kwargs={"nesterovv": True, "momentum": "0.9"},
        name="${nowhere}",
        max_epochs="???",
        augmentations__0__num_crops=3,
    )
    cfg.augmentations[0].num_crops = 3
    with pytest.raises(ValueError) as caught:
        complete(cfg)
    for fault in (
        "devices=[0, 0]: must be a number from 1 to 1024, a list of different device numbers",
        "precision='8': must be one of 16, 16-mixed",
        "strategy='ddp_spawn': must be one of auto, ddp",
        "barebones is no key of the runner: a run without logs",
        "method_kwargs.tau is unknown to decoupled_moco",
        "method_kwargs.queue_size must be a whole number above 0, got 'x'",
        "method_kwargs.vector.order must be one of recent, earliest, random, got 'new'",
        "method_kwargs.vector.tua is unknown to decoupled_moco; did you mean tau?",
        "backbone.kwargs.stem_paddding is unknown to resnet18_small; did you mean stem_padding?",
        "backbone.kwargs.depth is unknown to resnet18_small",
        "backbone.kwargs.groups=3: resnet18_small cannot be built with it",
        "optimizer.kwargs.nesterovv is unknown to sgd; did you mean nesterov?",
        "optimizer.kwargs.momentum='0.9': must be a finite number of at least 0",
        "name cannot be resolved: Interpolation key 'nowhere' not found",
        "max_epochs is not set",
        "augmentations give 3 views of [16] pixels",
    ):
        assert f"  - {fault}" in str(caught.value), fault


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("backbone__name", "resnet19", "backbone.name='resnet19': must be one of resnet18"),
        ("backbone__name", "resnet19", "; did you mean resnet18?"),
        ("backbone__name", "vit_tiny", "images of augmentations[0].crop_size=16 pixels (Assertion"),
        (
            "backbone__kwargs",
            {"channels": "x"},
            "backbone.kwargs.channels='x': micro_resnet cannot",
        ),
        ("backbone__kwargs", {"channels": [8, 8]}, "backbone.name='micro_resnet' cannot train on"),
        ("backbone__kwargs", {"num_classes": 7}, "gives features of shape (7,) in place of (256,)"),
        ("backbone__kwargs", {"layers": None}, "backbone.kwargs.layers=None"),
        ("optimizer__batch_size", 1, "cannot train on a batch of one image"),
        (
            "optimizer__kwargs",
            {"lr": 1},
            "optimizer.kwargs.lr is unknown to sgd; did you mean opti",
        ),
        ("optimizer__kwargs", {"dampening": 0.1, "nesterov": True}, "sgd refuses them (ValueError"),
        ("optimizer__kwargs", {"differentiable": True}, "sgd refuses them (RuntimeError"),
        ("method_kwargs__tau_alpha", 1e-300, "must be a number from 1e-06 to 1e+06, got 1e-300"),
        ("method_kwargs__tau_beta", "???", "method_kwargs.tau_beta is not set"),
        ("method_kwargs__proj_output_dim", 2**31, "must be a whole number from 1 to 2147483647"),
        ("momentum__base_tau", 0.9, "momentum.*: simco has no momentum encoder"),
        ("seed", 2**32, "seed=4294967296: must be a whole number from 0 to 4294967295"),
        ("data__num_classes", 3, "data.num_classes=3: digits has 10"),
        ("scheduler__lr_decay_steps", [5.5], "must be a list of whole numbers of at least 1"),
        ("optimizer", ["sgd"], "optimizer=['sgd']: must be a mapping with keys of its own"),
        ("wandb", None, "wandb=None: must be a mapping with keys of its own"),
        ("name", "n" * 300, "at most 200 bytes"),
        ("name", "${name}", "name cannot be resolved"),
    ],
)
def test_is_refused_by_name(key, value, message):
    assert message in refusal(**{key: value})


def test_betas_of_adam():
    assert "betas=[0.9]: must be a list of 2 numbers from 0 to 1" in refusal(
        optimizer__name="adamw", optimizer__kwargs={"betas": [0.9]}
    )
    cfg = complete(config(optimizer__name="adamw", optimizer__kwargs={"betas": [0.9, 0.95]}))
    assert list(cfg.optimizer.kwargs.betas) == [0.9, 0.95]


def test_a_key_with_a_dot_is_not_taken_for_two():
    cfg = config()
    cfg["optimizer.lr"] = 1.0
    with pytest.raises(ValueError, match="'optimizer.lr' is a key with a dot"):
        complete(cfg)


def test_mappings_that_hold_themselves():
    message = refusal(wandb={"project": "${checkpoint}"}, checkpoint={"dir": "${wandb}"})
    assert "wandb.project refers to a mapping that holds it itself" in message
    assert "checkpoint.dir refers to a mapping that holds it itself" in message


def test_checking_draws_nothing():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    complete(config(backbone__kwargs={"drop_rate": 0.5, "channels": [8, 8, 16, 24]}))
    assert torch.equal(before, torch.random.get_rng_state())


def test_every_argument_of_lightning_is_allowed_or_refused_with_a_reason():
    arguments = set(inspect.signature(Trainer.__init__).parameters) - {"self"}
    assert arguments <= {*TRAINER_KEYS, *REFUSED}
    message = refusal(**dict.fromkeys(REFUSED, 1))
    for key, reason in REFUSED.items():
        assert f"{key} is no key of the runner: {reason}" in message


@pytest.mark.parametrize(
    "key, wrong, right",
    [
        ("strategy", ["fsdp", "deepspeed", "ddp_fork", "ddp_notebook", 1], ["auto", "ddp", None]),
        ("accelerator", ["tpu", "x", 5], ["auto", "cpu", "gpu", "cuda", "mps", None]),
        ("precision", ["transformer-engine", True, 16.0, 8, ""], [16, "bf16", 64, "32-true", None]),
        ("devices", ["cuda:0", "[0]", [True], [-1], [0, 0], 0, 9999, "²"], ["0,", " 2 ", "0, 1"]),
        ("deterministic", [5, "yes"], [True, "warn", None]),
        ("benchmark", [1], [True, None]),
        ("inference_mode", [None], [False]),
        ("detect_anomaly", ["x"], [True]),
        ("profiler", ["x", True], ["simple", None]),
        ("gradient_clip_algorithm", ["x"], ["norm", "value"]),
        ("gradient_clip_val", [-1, True], [0, 0.5]),
        ("accumulate_grad_batches", [{0: 1}, 0, 1.5], [4]),
        ("limit_train_batches", [0, 0.0, 1.5, -1], [1, 0.5, 1.0, None]),
        ("limit_val_batches", [1.5, -1], [0, 0.0, 3]),
        ("check_val_every_n_epoch", [0, None, 1.5], [1, 99]),
        ("log_every_n_steps", [0], [10**6]),
        ("num_sanity_val_steps", [-2], [-1, 0, None]),
        ("num_nodes", [0, None], [2]),
    ],
)
def test_lightning_s_arguments(key, wrong, right):
    for value in wrong:
        assert f"{key}={value!r}: must be" in refusal(**{key: value}), value
    for value in right:
        complete(config(**{key: value}))


@pytest.mark.parametrize(
    "leaf, size, processes",
    [
        ("digits/simco", 1, 1),
        ("digits/simmoco", 1, 1),
        ("digits/simsiam_hardness", 1, 2),
        ("digits/byol_hardness", 1, 2),
        ("digits/decoupled_moco", 1, 1),
    ],
)
def test_a_single_anchor_without_negatives(leaf, size, processes):
    cfg = config(
        leaf, backbone__name="vit_tiny", backbone__kwargs={"img_size": 16, "patch_size": 8}
    )
    cfg.optimizer.batch_size = size
    if "decoupled" in leaf:
        cfg.method_kwargs.vector.negatives = "batch"
    completed = complete(cfg)
    with pytest.raises(ValueError, match=r"optimizer.batch_size=1 on . process\(es\)"):
        parse(completed, processes)
    completed.optimizer.batch_size = 2
    parse(completed, processes)


def test_no_room_in_memory():
    with pytest.raises(ValueError, match="simco has no room in memory"):
        with refusals_named("simco"):
            torch.empty(2**46)
    with pytest.raises(RuntimeError, match="another"), refusals_named("simco"):
        raise RuntimeError("another")


def test_momentum_may_be_left_out():
    cfg = config("digits/simmoco")
    del cfg["momentum"]
    completed = complete(cfg)
    assert (completed.momentum.base_tau, completed.momentum.final_tau) == (0.99, 1.0)
    find_method("simmoco")(parse(completed, 1))
