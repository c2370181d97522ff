"""A config means the same however it is ordered and spelt, and whatever it does not depend on."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from simco_methods.config.parse import complete, fingerprint, parse
from simco_methods.config.spelling import spell_devices, spell_precision
from tests.helpers import compose_config

PLAIN = {
    name: OmegaConf.to_container(compose_config(name), resolve=True)
    for name in ("digits/simco", "digits/mocov2", "digits/decoupled_moco")
}
NAMES = st.sampled_from(sorted(PLAIN))
finite = st.floats(1e-6, 1e3)
# What makes another run of a config, and what does not.
ESSENTIAL = {
    "seed": st.integers(0, 2**31),
    "max_epochs": st.integers(1, 2000),
    "optimizer.lr": finite,
    "optimizer.classifier_lr": finite,
    "optimizer.batch_size": st.integers(2, 4096),
    "optimizer.weight_decay": st.floats(0, 1),
    "scheduler.warmup_epochs": st.integers(0, 20),
    "accumulate_grad_batches": st.integers(1, 8),
    "knn_eval.k": st.integers(1, 200),
    "precision": st.sampled_from(["32-true", "bf16-mixed", "64-true"]),
    "devices": st.integers(1, 8),
    "method_kwargs.proj_output_dim": st.integers(1, 512),
    "augmentations.0.crop_size": st.integers(8, 96),
    "backbone.kwargs.channels": st.lists(st.integers(1, 64), min_size=4, max_size=4),
}
INCIDENTAL = {
    "name": st.sampled_from(["x", "another name", "ünï"]),
    "output_dir": st.sampled_from([None, "somewhere", "/tmp/else"]),
    "data.num_workers": st.integers(0, 64),
    "data.loader": st.sampled_from(["auto", "workers", "device"]),
    "checkpoint.frequency": st.integers(1, 100),
    "checkpoint.keep_prev": st.booleans(),
    "auto_resume.max_hours": st.none() | st.integers(1, 100),
    "wandb.project": st.sampled_from(["a", "b"]),
    "wandb.offline": st.booleans(),
    "log_every_n_steps": st.integers(1, 1000),
    "performance.compile": st.booleans(),
}


# Each completes a config or several, which builds its backbone.
fewer = settings(max_examples=settings.default.max_examples // 6)


@st.composite
def changes(draw, keys):
    chosen = draw(st.lists(st.sampled_from(sorted(keys)), unique=True, max_size=4))
    return {key: draw(keys[key]) for key in chosen}


def config(name, *several):
    cfg = OmegaConf.create({**PLAIN[name], "accelerator": "cpu"})
    for changed in several:
        for key, value in changed.items():
            OmegaConf.update(cfg, key, value, force_add=True)
    return cfg


def shuffled(node, random):
    if isinstance(node, dict):
        keys = random.sample(list(node), len(node))
        return {key: shuffled(node[key], random) for key in keys}
    return [shuffled(child, random) for child in node] if isinstance(node, list) else node


@fewer
@given(
    NAMES, changes(ESSENTIAL), st.fixed_dictionaries(INCIDENTAL), st.randoms(use_true_random=False)
)
def test_a_run_is_known_by_what_it_depends_on(name, essential, incidental, random):
    whole = complete(config(name, essential, incidental))
    known = fingerprint(whole)
    assert complete(whole) == whole
    assert fingerprint(complete(config(name, essential))) == known
    reordered = OmegaConf.create(shuffled(OmegaConf.to_container(whole), random))
    assert fingerprint(complete(reordered)) == known
    # As from the config.yaml that a run leaves.
    assert complete(OmegaConf.create(OmegaConf.to_yaml(whole))) == whole


@fewer
@given(NAMES, st.sampled_from(sorted(ESSENTIAL)), st.data())
def test_other_values_are_another_run(name, key, data):
    one, other = (data.draw(ESSENTIAL[key]) for _ in range(2))
    prints = [fingerprint(complete(config(name, {key: value}))) for value in (one, other)]
    assert (prints[0] == prints[1]) == (one == other)


@fewer
@given(NAMES, changes(ESSENTIAL), st.integers(1, 16))
def test_rates_are_scaled_to_the_batch_of_all_processes(name, essential, world):
    whole = complete(config(name, essential))
    before = OmegaConf.to_yaml(whole)
    parsed = parse(whole, world)
    assert OmegaConf.to_yaml(whole) == before
    scale = whole.optimizer.batch_size * world / 256
    for key in ("lr", "classifier_lr"):
        assert parsed.optimizer[key] == pytest.approx(whole.optimizer[key] * scale)


@given(st.lists(st.integers(0, 31), min_size=1, max_size=8, unique=True))
def test_devices_in_every_spelling(numbers):
    joined = ",".join(map(str, numbers))
    lists = [numbers, OmegaConf.create(numbers), f"{joined},", f" {joined.replace(',', ', ')}, "]
    if len(numbers) > 1:
        lists.append(joined)
    for spelt in lists:
        assert spell_devices(spelt, on_cpu=False) == numbers
        assert spell_devices(spelt, on_cpu=True) == len(numbers)
    for count in (len(numbers), str(len(numbers)), f" {len(numbers)} "):
        assert spell_devices(count, False) == spell_devices(count, True) == len(numbers)


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=6),
    st.from_regex(r"\s*[-+]?[\d,\[\]. ]{0,6}\s*", fullmatch=True),
    st.lists(st.none() | st.integers(-3, 3) | st.text(max_size=2) | st.booleans(), max_size=3),
)


@given(anything, st.booleans())
@example("²", True)
@example("--1", True)
@example([True], False)
@example([0, 0], False)
def test_of_devices_and_precision_what_is_not_understood_is_refused_by_name(value, on_cpu):
    for key, spell in (("devices", spell_devices), ("precision", spell_precision)):
        try:
            spelt = spell(value, on_cpu)
        except ValueError as error:
            assert str(error).startswith(f"{key}=") and "must be" in str(error)
        else:
            # Spelt once and for all.
            assert spell(spelt, on_cpu) == spelt
            if key == "devices":
                numbers = spelt if isinstance(spelt, list) else [spelt]
                assert numbers and all(type(n) is int and n >= -1 or n == "auto" for n in numbers)
