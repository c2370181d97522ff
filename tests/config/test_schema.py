"""Wrong keys and values: one message with all of them, what is allowed and the nearest name."""

import pytest
from omegaconf import OmegaConf

from simco_methods.config.parse import complete, fingerprint, parse
from simco_methods.config.spelling import spell_devices, spell_precision
from simco_methods.overrides import Arguments, hydra_override
from tests.helpers import compose_config


def config(**changes):
    cfg = compose_config("digits/mocov2")
    for key, value in changes.items():
        OmegaConf.update(cfg, key.replace("__", "."), value, force_add=True)
    return cfg


@pytest.mark.parametrize(
    "key, nearest",
    [
        ("optimzer__lr", "optimizer"),
        ("optimizer__batchsize", "optimizer.batch_size"),
        ("max_epoch", "max_epochs"),
        ("scheduler__warmup", "scheduler.warmup_epochs"),
        ("knn_eval__distance", "knn_eval.distance_func"),
        ("batch_size", "optimizer.batch_size"),
        ("data__num_worker", "data.num_workers"),
        ("augmentatoins", "augmentations"),
        ("momentum__tau_base", "momentum.base_tau"),
    ],
)
def test_unknown_keys_name_the_nearest(key, nearest):
    with pytest.raises(ValueError) as caught:
        complete(config(**{key: 1}))
    assert f"did you mean {nearest}?" in str(caught.value)


@pytest.mark.parametrize(
    "key, value, allowed",
    [
        ("optimizer__lr", "fast", "a finite number of at least 0"),
        ("optimizer__lr", float("nan"), "a finite number"),
        ("optimizer__batch_size", 0, "a whole number of at least 1"),
        ("optimizer__batch_size", True, "a whole number"),
        ("optimizer__name", "sdg", "one of sgd, lars, adam, adamw"),
        ("momentum__base_tau", 1.5, "a number from 0 to 1"),
        ("data__dataset", "cifar", "one of digits, cifar10"),
        ("data__format", "dali", "one of image_folder"),
        ("data__fraction", 1, "-1 for all, or a share"),
        ("wandb__enabled", "yes", "true or false"),
        ("scheduler", 3, "a mapping with keys of its own"),
        ("data__train_path", "", "text that is not empty"),
        ("name", "../x", "text that can name a folder"),
        ("check_val_every_n_epoch", 0, "a whole number of at least 1"),
        ("limit_train_batches", 1.5, "a number of batches of at least 1, or a share"),
        ("seed", -1, "a whole number of at least 0"),
        ("knn_eval__distance_func", "cos", "one of cosine, euclidean"),
    ],
)
def test_wrong_values_say_what_is_allowed(key, value, allowed):
    with pytest.raises(ValueError) as caught:
        complete(config(**{key: value}))
    assert f"{key.replace('__', '.')}={value!r}: must be {allowed}" in str(caught.value)


def assert_faults(cfg, *faults):
    with pytest.raises(ValueError) as caught:
        complete(cfg)
    for fault in faults:
        assert fault in str(caught.value), fault


def test_all_faults_are_listed_at_once():
    cfg = config(optimizer__lr=-1, nonsense=1, max_epochs=0)
    cfg.augmentations[0].color_jitter.hue = 0.7
    cfg.augmentations[0].blur = {"prob": 1}
    del cfg.augmentations[0]["crop_size"]
    del cfg["name"]
    assert_faults(
        cfg,
        "optimizer.lr=-1",
        "nonsense is no key",
        "max_epochs=0",
        "augmentations[0].color_jitter.hue=0.7",
        "augmentations[0].blur",
        "augmentations[0].crop_size is not set",
        "name is not set",
    )


def test_views_and_schedules_that_cannot_work():
    cfg = config(scheduler__name="step")
    cfg.augmentations[0].rrc.crop_min_scale = 1.0
    cfg.augmentations[0].rrc.crop_max_scale = 0.5
    cfg.augmentations[0].mean = [0.5]
    assert_faults(
        cfg,
        "scheduler.name=step needs scheduler.lr_decay_steps",
        "augmentations[0].rrc.crop_min_scale=1.0 is above crop_max_scale=0.5",
        "augmentations[0].mean=[0.5]: must be a list of 3 numbers",
    )


@pytest.mark.parametrize("key", ["max_steps", "fast_dev_run", "overfit_batches", "logger"])
def test_what_would_cut_a_run_short_is_refused(key):
    with pytest.raises(ValueError, match=f"{key} is no key of the runner"):
        complete(config(**{key: 1}))


def test_momentum_is_a_default_of_the_optimisers_that_have_one():
    assert complete(config()).optimizer.kwargs.momentum == 0.9
    assert "momentum" not in complete(config(optimizer__name="adamw")).optimizer.kwargs


def test_momentum_of_a_method_without_a_momentum_encoder():
    cfg = config(method="simco", method_kwargs={})
    assert "momentum" in cfg
    with pytest.raises(ValueError, match="momentum.*simco has no momentum encoder"):
        complete(cfg)


def test_groups_are_left_to_hydra():
    given = ["contrast/baselines=simclr", "recipe=paper", "seed=6"]
    assert [hydra_override(text) for text in given] == [*given[:2], "++seed=6"]


def test_unknown_method_and_backbone():
    with pytest.raises(ValueError, match="method='moco' is none of simco, simmoco, mocov2"):
        complete(config(method="moco"))
    with pytest.raises(ValueError, match="method_kwargs.temperature is unknown.*did you mean tau"):
        complete(config(method_kwargs__temperature=0.2))


def test_multicrop_is_refused_by_name():
    cfg = config()
    cfg.augmentations.append({**cfg.augmentations[0], "crop_size": 8})
    with pytest.raises(ValueError, match=r"4 views of \[8, 16\] pixels.*multi-crop"):
        parse(complete(cfg), 1)


@pytest.mark.parametrize("spelt", [1, "1", [0], "0,", "[0]"])
def test_one_device_in_every_spelling(spelt):
    if spelt == "[0]":
        with pytest.raises(ValueError, match="devices='\\[0\\]'"):
            spell_devices(spelt, on_cpu=True)
    else:
        assert spell_devices(spelt, on_cpu=True) == 1


def test_devices():
    assert [spell_devices(d, True) for d in (2, "2", [0, 1], "0,1", "auto", -1, "-1")] == [
        2, 2, 2, 2, 1, 1, 1,
    ]  # fmt: skip
    assert [spell_devices(d, False) for d in (2, "2", [0, 1], "0,1", "auto", "-1")] == [
        2, 2, [0, 1], [0, 1], "auto", -1,
    ]  # fmt: skip
    for bad in (0, -2, "two", [], True, None, 1.5):
        with pytest.raises(ValueError, match="devices="):
            spell_devices(bad, True)


@pytest.mark.parametrize("spelt", [16, "16", "16-mixed", "bf16", 32, "32-true", "64"])
def test_precision_in_every_spelling(spelt, capsys):
    on_gpu, on_cpu = spell_precision(spelt, False), spell_precision(spelt, True)
    assert on_gpu in ("16-mixed", "bf16-mixed", "32-true", "64-true")
    half = str(spelt).startswith("16")
    assert on_cpu == ("32-true" if half else on_gpu)
    assert ("trains in 32-true" in capsys.readouterr().out) == half


def test_unknown_precision():
    with pytest.raises(ValueError, match="precision='8': must be one of"):
        spell_precision("8", False)


def test_rates_follow_the_batch_whatever_the_spelling_of_devices():
    for devices in (2, "2", [0, 1]):
        cfg = config(devices=devices, optimizer__batch_size=128, optimizer__lr=0.03)
        parsed = parse(complete(cfg), world_size=2)
        assert parsed.optimizer.lr == pytest.approx(0.03)


def test_fingerprint_is_of_what_matters():
    base = fingerprint(complete(config()))
    for same in (
        {"data__num_workers": 7},
        {"wandb__project": "x"},
        {"name": "x"},
        {"checkpoint__frequency": 9},
    ):
        assert fingerprint(complete(config(**same))) == base, same
    others = [
        {"seed": 6},
        {"method_kwargs__tau": 0.2},
        {"momentum__final_tau": 1.0},
        {"max_epochs": 11},
        {"data__train_path": "elsewhere"},
        {"optimizer__batch_size": 63},
    ]
    prints = {fingerprint(complete(config(**other))) for other in others}
    assert len(prints) == len(others) and base not in prints


def test_a_config_path_is_relative_to_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    assert Arguments.read(["--config-path", "run", "-cp", "pkg://x"]).for_hydra() == [
        "--config-path", str(tmp_path / "run"), "-cp", "pkg://x",
    ]  # fmt: skip


def test_command_line_accepts_keys_that_the_yaml_leaves_out():
    given = ["--config-name", "digits/simco", "accumulate_grad_batches=2", "seed=1", "-m"]
    kept = [
        "recipe=paper",
        "hydra.run.dir=x",
        "+a.b=1",
        "~momentum",
        "augmentations@augmentations=crop32",
    ]
    assert Arguments.read(given + kept).for_hydra() == [
        "++accumulate_grad_batches=2", "++seed=1", *kept, "--config-name", "digits/simco", "-m",
    ]  # fmt: skip
