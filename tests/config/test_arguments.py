"""The command's arguments: what Hydra cannot compose is said in a line, with file or key."""

import pytest

from simco_methods.overrides import accept_every_key, check_arguments, composing_fault
from tests.helpers import compose_config


def refusal(*arguments):
    with pytest.raises(ValueError) as caught:
        check_arguments(list(arguments))
    return str(caught.value)


@pytest.mark.parametrize(
    "name, nearest",
    [
        ("digits/simcoo", "did you mean digits/simco"),
        ("digit/simco", "did you mean digits/simco"),
        ("cifar10/baselines/symclr.yaml", "did you mean cifar10/baselines/simclr"),
        ("simco", "did you mean"),
        ("nonsense", "there is no such config"),
    ],
)
def test_a_misspelt_config_names_the_nearest(name, nearest):
    for form in (("--config-name", name), (f"--config-name={name}",), ("-cn", name)):
        assert nearest in refusal(*form, "seed=1")


def test_what_is_there_passes(tmp_path):
    check_arguments(["-m", "--config-name", "digits/simco", "seed=1,2", "~wandb", "+a.b=[1,{c:2}]"])
    check_arguments(["-cn", "cifar10/baselines/simclr.yaml", "contrast=mocov2", "recipe=[paper]"])
    (tmp_path / "mine.yaml").write_text("seed: 1")
    check_arguments(["--config-path", str(tmp_path), "--config-name", "mine"])
    check_arguments(["--config-dir", str(tmp_path), "--config-name", "mine"])
    assert "no such config; did you mean mine?" in refusal("-cp", str(tmp_path), "-cn", "mime")
    assert "nowhere: there is no such folder" in refusal("-cp", "nowhere", "-cn", "mine")


def test_all_that_cannot_be_read_is_listed():
    message = refusal(
        "-cn", "digits/simcoo", "seed=[", "name", "augmentations=null", "augmentations.x=1",
        "hydra=3", "digits={}", "=3",
    )  # fmt: skip
    for fault in (
        "--config-name digits/simcoo: there is no such config",
        "seed=[: no viable alternative",
        "name: missing EQUAL",
        "augmentations=null: must name a file of the configs' folder augmentations",
        "augmentations.x=1: augmentations is a list",
        "hydra=3: must name a file",
        "digits={}: must name a file",
        "=3: has no key",
    ):
        assert f"  - {fault}" in message


@pytest.mark.parametrize(
    "arguments, line",
    [
        (
            ["recipe=digitss"],
            "Could not find 'recipe/digitss'; did you mean digits?; there are base",
        ),
        (
            ["optimizer=[1]"],
            "Error merging override optimizer=[1]: Cannot merge DictConfig with List",
        ),
        (["augmentations.7.crop_size=1"], "augmentations.7.crop_size=1: list index out of range"),
        (["~augmentations.0"], "no config can be composed of ~augmentations.0 (TypeError"),
        (["contrast=${oc.env:NO}"], "Error resolving interpolation '${oc.env:NO}', possible"),
        (["contrast=${oc.env:NO}"], "(contrast=${oc.env:NO})"),
        (["~nothing"], "Could not delete from config. 'nothing' does not exist"),
        (["+seed=3"], "Could not append to config. An item is already at 'seed'"),
    ],
)
def test_what_cannot_be_composed(arguments, line):
    with pytest.raises(Exception) as caught:
        compose_config("digits/simco", *accept_every_key(arguments))
    said = composing_fault(caught.value, arguments, "task")
    assert line in said and "\n" not in said
    here = "test_what_cannot_be_composed"  # an error of the task itself is none of composing
    assert composing_fault(caught.value, arguments, here) is None


@pytest.mark.parametrize(
    "text, line",
    [
        ("a: [1\nb: 2\n", "line 2: expected ',' or ']', but got ':'"),
        ("seed: 1\nseed: 2\n", "line 2: found duplicate key seed"),
        ("a: 1\n\tb: 2\n", "line 2: found character '\\t' that cannot start any token"),
        ("- 1\n", "must be a DictConfig, got ListConfig"),
    ],
)
def test_a_file_of_one_s_own(text, line, tmp_path):
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    (tmp_path / "mine.yaml").write_text(text)
    GlobalHydra.instance().clear()
    with pytest.raises(Exception) as caught:
        with initialize_config_dir(str(tmp_path), version_base="1.3"):
            compose("mine")
    said = composing_fault(caught.value, [], "task")
    assert said.endswith(line) and "\n" not in said
    assert "DictConfig" in line or said.startswith(str(tmp_path / "mine.yaml"))


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"a: \xff\xfe\n")
    assert "mine.yaml: is no text in UTF-8" in refusal("-cp", str(tmp_path), "-cn", "mine")


def test_a_config_path_in_either_spelling(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    assert accept_every_key(["--config-path=run", "-cn", "config", "-cp", "run"]) == [
        f"--config-path={tmp_path / 'run'}", "-cn", "config", "-cp", str(tmp_path / "run"),
    ]  # fmt: skip
