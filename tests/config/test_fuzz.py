"""Configs and overrides that are wrong at random: a ValueError that names the key, or they work."""

import copy
import math
import random
from collections import Counter

import pytest
from omegaconf import OmegaConf

from simco_methods.config.method import refusals_named
from simco_methods.config.parse import complete, parse
from simco_methods.methods import find_method
from simco_methods.overrides import Arguments, check_arguments, composing_fault, hydra_override
from tests.helpers import LEAVES, compose_config

ODD = [
    None, True, False, 0, -1, 1, 2, 0.5, -0.5, 1e-9, 1e9, 10**30, math.nan, math.inf, -math.inf,
    "", " ", "x", "1", "0.1", "auto", "???", "${nope}", "${name}", "${oc.env:NO_SUCH_VARIABLE}",
    "\0", "é", "a b", [], [1], ["x"], [None], [[1, 2]], {}, {"a": 1}, {"a.b": {"c": None}}, {3: 4},
]  # fmt: skip
KEYS = ["x", "tau", "lr", "name", "kwargs", "seed", "a.b", "é", "max_steps", "plugins"]
# What the YAML of a leaf leaves out, so that values of them are tried too.
LEFT_OUT = [
    "backbone.kwargs.channels", "optimizer.kwargs.momentum", "optimizer.kwargs.nesterov",
    "optimizer.exclude_bias_n_norm_wd", "scheduler.lr_decay_steps", "precision", "num_nodes",
    "accumulate_grad_batches", "check_val_every_n_epoch", "limit_train_batches", "output_dir",
    "limit_val_batches", "gradient_clip_val", "deterministic", "profiler", "val_check_interval",
    "data.fraction", "data.no_labels", "data.train_images_per_class", "data.num_classes",
    "method_kwargs.symmetric", "momentum.base_tau", "knn_eval.offline", "checkpoint.dir",
    "auto_resume.max_hours", "barebones", "strategy", "accelerator", "devices", "hydra",
]  # fmt: skip


def places(node, path=()):
    """Every place of a nested container."""
    entries = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in entries:
        yield (*path, key)
        if isinstance(value, dict | list) and value:
            yield from places(value, (*path, key))


def at(node, path):
    for key in path:
        node = node[key]
    return node


def spelt(path):
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in path).removeprefix(".")


def misspell(word, draw):
    place = draw.randrange(len(word) or 1)
    return draw.choice([word[:place] + word[place + 1 :], word[:place] + "q" + word[place:]]) or "q"


def mutate(plain, draw):
    """Changes one place; returns what has been done, and the names by one of which it is known."""
    path = draw.choice(list(places(plain)))
    parent, key = at(plain, path[:-1]), path[-1]
    kind = draw.choice(
        ["drop", "misspell", "replace", "replace", "wrap", "nest", "add", "left out"]
    )
    names = {spelt(path), spelt(path[:-1]) or spelt(path), str(key)}
    if kind == "drop":
        del parent[key]
    elif kind == "misspell" and isinstance(key, str):
        other = misspell(key, draw)
        parent[other] = parent.pop(key)
        names |= {other}
    elif kind == "wrap":
        parent[key] = [parent[key]]
    elif kind == "nest":
        parent[key] = {draw.choice(KEYS): parent[key]}
    elif kind == "add" and isinstance(parent, dict):
        other = draw.choice(KEYS)
        parent[other] = copy.deepcopy(draw.choice(ODD))
        names |= {other}
    elif kind == "left out":
        *groups, last = draw.choice(LEFT_OUT).split(".")
        node = plain
        for group in groups:
            if not isinstance(node.get(group), dict):
                node[group] = {}
            node = node[group]
        node[last] = copy.deepcopy(draw.choice(ODD))
        names = {".".join([*groups, last]), last, *groups}
    else:
        parent[key] = copy.deepcopy(draw.choice(ODD))
    return f"{kind} {spelt(path)}", names


def outcome(cfg, did, names, world_size, build):
    """ "refused" with a message that names what is wrong, or "accepted"; nothing else."""
    try:
        completed = complete(cfg)
        parsed = parse(completed, world_size)
    except ValueError as error:
        first, *lines = str(error).splitlines()
        assert any(name in str(error) for name in names), f"{did}: {error}"
        assert all(line.startswith("  - ") for line in lines), f"{did}: {error}"
        return "refused"
    if build:
        with refusals_named(parsed.method):
            find_method(parsed.method)(parsed)
    return "accepted"


def fuzz(leaves, cases, seed):
    draw = random.Random(seed)
    composed = {leaf: OmegaConf.to_container(compose_config(leaf)) for leaf in leaves}
    counts = Counter()
    for case in range(cases):
        leaf = draw.choice(leaves)
        plain = copy.deepcopy(composed[leaf])
        did, names = mutate(plain, draw)
        for _ in range(draw.choice([0, 0, 0, 1, 3])):
            more, others = mutate(plain, draw)
            did, names = f"{did}, {more}", names | others
        try:
            cfg = OmegaConf.create(plain)
        except Exception as error:  # what no YAML file gives: a key that is no name
            assert "key" in str(error).lower(), (did, error)
            continue
        build = "digits" in leaf and case % 20 == 0
        counts[outcome(cfg, f"{leaf}: {did}", names, draw.choice([1, 2]), build)] += 1
    return counts


def test_mutated_configs(capsys):
    counts = fuzz([leaf for leaf in LEAVES if leaf.startswith("digits")], cases=150, seed=7)
    assert counts["refused"] > 100 and counts["accepted"] > 5, counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_mutated_configs_of_every_data_set(seed, capsys):
    leaves = [leaf for leaf in LEAVES if not leaf.startswith("custom")]  # it asks for a folder
    counts = fuzz(leaves, cases=600, seed=seed)
    assert counts["refused"] > 300 and counts["accepted"] > 30, counts


VALUES = [
    "null", "true", "0", "-1", "1", "0.5", "1e400", "nan", "inf", "-inf", "[]", "[1]", "[null]",
    "{}", "{a:1}", "{a:{b:null}}", "x", "'x y'", "'0.1'", "${nope}", "${name}", "${seed}", "", "[",
    "}", "'", "???", "99999999999999999999", "${oc.env:NO}", "a=b", "é", "\\", "[1,[2,{a:b}]]",
    "${${seed}}",
]  # fmt: skip
FORMS = [
    "{}={}",
    "{}={}",
    "{}={}",
    "+{}={}",
    "++{}={}",
    "~{}",
    "~{}={}",
    "{}",
    "{}.x={}",
    "{}.0={}",
]


def override(draw, keys):
    key = draw.choice(keys)
    if draw.random() < 0.2:
        key = misspell(key, draw)
    return draw.choice(FORMS).format(key, draw.choice(VALUES)), key


def fuzz_overrides(cases, seed):
    draw = random.Random(seed)
    keys = [
        spelt(p).replace("[", ".").replace("]", "")
        for p in places(OmegaConf.to_container(compose_config("digits/decoupled_moco")))
    ]
    keys += [*LEFT_OUT, "recipe", "dataset", "contrast", "augmentations", "hydra.run.dir", "=", ""]
    counts = Counter()
    for _ in range(cases):
        drawn = [override(draw, keys) for _ in range(draw.choice([1, 1, 2]))]
        arguments = [text for text, _ in drawn]
        names = {part for _, key in drawn for part in (key, key.split(".")[-1], key.split(".")[0])}
        if {"~recipe", "~dataset", "~contrast"} & set(arguments):
            names |= {"is not set"}  # all that a whole file would have set
        try:
            read = Arguments.read(["--config-name", "digits/decoupled_moco", *arguments])
            check_arguments(read)
        except ValueError as error:
            assert any(text in str(error) for text in arguments)
            counts["not read"] += 1
            continue
        try:
            cfg = compose_config("digits/decoupled_moco", *map(hydra_override, arguments))
        except Exception as error:  # of any kind; the command says it in a line
            line = composing_fault(error, read, "nowhere")
            assert line and "\n" not in line and any(n in line for n in names), (arguments, line)
            counts["not composed"] += 1
            continue
        counts[outcome(cfg, str(arguments), names, 1, False)] += 1
    return counts


def test_random_overrides(capsys):
    counts = fuzz_overrides(25, seed=3)
    assert sum(counts.values()) == 25 and min(counts["refused"], counts["not read"]) > 3, counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_more_random_overrides(seed, capsys):
    counts = fuzz_overrides(300, seed=seed + 10)
    assert min(counts[k] for k in ("refused", "accepted", "not read", "not composed")) > 2, counts
