"""The command's arguments: what Hydra cannot compose is said in a line, with file or key."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from simco_methods.config.checks import is_text
from simco_methods.config.keys import RUN
from simco_methods.config.parse import complete
from simco_methods.config.resolve import resolve
from simco_methods.overrides import Arguments, check_arguments, composing_fault, hydra_override
from tests.helpers import NAMES, compose_config


def accept(*arguments):
    check_arguments(Arguments.read(arguments))


def refusal(*arguments):
    with pytest.raises(ValueError) as caught:
        accept(*arguments)
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
    accept("-m", "--config-name", "digits/simco", "seed=1,2", "~wandb", "+a.b=[1,{c:2}]")
    accept("-cn", "cifar10/baselines/simclr.yaml", "contrast=mocov2", "recipe=[paper]")
    (tmp_path / "mine.yaml").write_text("seed: 1")
    accept("--config-path", str(tmp_path), "--config-name", "mine")
    accept("--config-dir", str(tmp_path), "--config-name", "mine")
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
        compose_config("digits/simco", *map(hydra_override, arguments))
    arguments = Arguments.read(arguments)
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
    said = composing_fault(caught.value, Arguments.read([]), "task")
    assert said.endswith(line) and "\n" not in said
    assert "DictConfig" in line or said.startswith(str(tmp_path / "mine.yaml"))


def test_a_name_that_is_no_text():
    assert "name=x\udcff: is no text in UTF-8" in refusal("-cn", "digits/simco", "name=x\udcff")


def test_a_file_that_is_no_text(tmp_path):
    (tmp_path / "mine.yaml").write_bytes(b"a: \xff\xfe\n")
    assert "mine.yaml: is no text in UTF-8" in refusal("-cp", str(tmp_path), "-cn", "mine")


def test_a_config_path_in_either_spelling(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    assert Arguments.read(["--config-path=run", "-cn", "config", "-cp", "run"]).for_hydra() == [
        "--config-path", str(tmp_path / "run"), "-cn", "config", "-cp", str(tmp_path / "run"),
    ]  # fmt: skip


# Keys that hold paths, names and other text. The config composes with any text in them.
TEXTS = [key for key, check in RUN.items() if is_text(check)]


def typed(*arguments, multirun=False):
    """The config of arguments of simco-pretrain, resolved as it is before it is checked."""
    accept(*arguments)
    given = [hydra_override(text, multirun) for text in arguments]
    return resolve(compose_config("custom/simco", *given))


def test_text_is_taken_as_it_was_typed():
    names = [*NAMES, "[x]", "a\nb", "'", '"', "''a'", "(", "a'b\\'c'"]
    for start in range(0, len(names), len(TEXTS)):
        given = dict(zip(TEXTS, names[start:] + names, strict=False))
        cfg, faults = typed(*(f"{key}={name}" for key, name in given.items()))
        assert {key: OmegaConf.select(cfg, key) for key in TEXTS} == given and not faults
        again = OmegaConf.create(OmegaConf.to_yaml(cfg))  # config.yaml of the run, read again
        assert {key: OmegaConf.select(again, key) for key in TEXTS} == given


@pytest.mark.parametrize(
    "given, read",
    [
        ("'a,b'", "a,b"),
        ('"a,b"', "a,b"),
        (r"'it\'s'", "it's"),
        ("null", None),
        ("run-${seed}", "run-5"),
        ("'run-${seed}'", "run-5"),
        (r"\${x}", "${x}"),
    ],
)
def test_quotes_null_and_references(given, read):
    keys = ("output_dir", "checkpoint.dir", "resume_from_checkpoint")
    signed = zip(("", "+", "++"), keys, strict=True)
    cfg, faults = typed("data.train_path=x", *(f"{sign}{key}={given}" for sign, key in signed))
    assert [OmegaConf.select(cfg, key) for key in keys] == [read] * 3 and not faults


def test_a_reference_to_no_key_is_a_fault_unless_it_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, faults = typed("data.train_path=${x}")
    assert "'x'" in faults["data.train_path"]
    for name in ("${x}", '"q"', "'a,b'"):
        (tmp_path / name).mkdir()
        cfg, faults = typed(f"data.train_path={name}")
        assert cfg.data.train_path == name and not faults
        assert complete(cfg).data.train_path == name


def test_commas_in_a_sweep(tmp_path, monkeypatch):
    def parsed(text):
        return OverridesParser.create().parse_override(text)

    def jobs(text):
        override = parsed(hydra_override(text, multirun=True))
        if not override.is_sweep_override():
            return [override.value()]
        return [parsed(f"x={part}").value() for part in override.sweep_string_iterator()]

    monkeypatch.chdir(tmp_path)
    for name in ("it's #1", "my photos (2)", "größe", "a=b", " a"):
        assert jobs(f"name={name}") == [name]
    assert jobs("name='a,b'") == ["a,b"]
    assert jobs("name=a,b") == jobs("name=choice(a,b)") == ["a", "b"]
    assert jobs("name=größe,it's,'a,b'") == ["größe", "it's", "a,b"]
    assert jobs("seed=1,2") == [1, 2]
    (tmp_path / "a,b").mkdir()
    assert jobs("data.train_path=a,b") == ["a,b"]


def test_options_and_settings_in_any_order():
    given = ["max_epochs=1", "--config-name", "digits/simco", "name=a b", "-m", "seed=1,2"]
    read = Arguments.read(given)
    assert read.multirun and read.overrides == ["max_epochs=1", "name=a b", "seed=1,2"]
    assert read.for_hydra() == [
        "++max_epochs=1", "++name='a b'", "++seed=1,2", "--config-name", "digits/simco", "-m",
    ]  # fmt: skip
    name = ("-cn", "digits/simco")
    assert "  - --config-name needs a value" in refusal("seed=1", "--config-name")
    assert "  - --sed=3 is no option; a setting has no dashes: sed=3" in refusal("--sed=3", *name)
    assert "  - --config-nam is no option; did you mean --config-name?" in refusal("--config-nam")


@pytest.mark.parametrize("key", ["optimizer", "++optimizer"])
def test_an_error_quotes_what_was_typed(key):
    with pytest.raises(Exception) as caught:
        compose_config("digits/simco", hydra_override(f"{key}=[1]"))
    said = composing_fault(caught.value, Arguments.read(["name=a b", f"{key}=[1]"]), "task")
    assert f" {key}=[1]: " in said
