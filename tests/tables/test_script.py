"""``simco-table`` as a command: it completes a table, whatever happens, and runs nothing twice."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from simco_methods import files
from simco_methods import table as table_command
from simco_methods.data import datasets
from simco_methods.files import lock, write_json
from simco_methods.report import report_tables
from simco_methods.tables import cell as cell_process
from simco_methods.tables import cost, launch, probe, script
from simco_methods.tables.definition import read_scale, read_table
from simco_methods.tables.script import _chosen
from tests.helpers import ROOT, run_script
from tests.tables.test_tables import table_and_cells

# Two runs of seconds each.
NAME = "supervised_hardness"
QUICK = ("-m", "simco_methods.table", NAME, "--scale", "smoke")
LAYOUT = ("data.train_images_per_class=13", "optimizer.batch_size=32", "knn_eval.offline=false")


@pytest.fixture(scope="module")
def probes(tmp_path_factory):
    """A probe of the kind of run that these tests make, made once."""
    folder = tmp_path_factory.mktemp("probes")
    done = table(folder, "--only", "equal")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "runs" / "tables" / "probes.json"


@pytest.fixture
def folder(tmp_path, probes):
    """A place to run a table in that was probed before."""
    (tmp_path / "runs" / "tables").mkdir(parents=True)
    shutil.copy(probes, tmp_path / "runs" / "tables")
    return tmp_path


def table(folder, *arguments, **env):
    return run_script(*QUICK, *LAYOUT, *arguments, cwd=folder, **env)


def given(*arguments):
    return table_command._arguments([*QUICK[2:], *LAYOUT, *arguments])


def start(folder, *arguments):
    return subprocess.Popen(
        [sys.executable, *QUICK, *LAYOUT, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SIMCO_HOST": "builtin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def cells(folder):
    return sorted((folder / "runs" / "tables" / "cells").iterdir())


def starts(cell):
    return (cell / "log.txt").read_text().count("---- ")


def test_a_table_from_nothing_and_nothing_left(tmp_path, monkeypatch, capsys):
    folder = tmp_path
    first = table(folder)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "[2/2] supervised_hardness: cross entropy, equal, seed 5" in first.stdout
    (results,) = (folder / "runs" / "tables" / "smoke").iterdir()
    assert results.name.startswith(f"{NAME}-")  # with overrides it is another table
    assert {path.name for path in results.iterdir()} == {
        "plan.json", "report.html", "runs.csv", "table.csv", "table.md", "table.png",
    }  # fmt: skip
    assert (results / "table.md").read_text() in first.stdout
    assert {path.name for path in folder.iterdir()} == {"runs"}

    again = table(folder)
    assert again.returncode == 0 and "nothing is left to run" in again.stdout
    assert [starts(cell) for cell in cells(folder)] == [1, 1]
    # Another seed is another run; what is there is counted in. A dry run only prints.
    files = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    script.Script(given("--seeds", "5", "6", "--only", "equal", "--dry")).announce()
    more = capsys.readouterr().out
    assert "4 cells (2 finished), 4 runs" in more and "1 run to make" in more
    assert "MiB of disk, " in more and " for 1 run; about " in more
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == files
    text = report_tables(["all"], "smoke", Path("runs/tables"), None)
    assert (results / "table.md").read_text() in text


@pytest.mark.slow
def test_a_failed_run_is_named_and_does_not_stop_the_others(folder):
    _, found = table_and_cells(NAME, "smoke", overrides=LAYOUT)
    bad = folder / "runs" / "tables" / "cells" / found[0].run.fingerprint
    broken = bad / "checkpoints" / "last.ckpt"
    broken.parent.mkdir(parents=True)
    broken.write_text("no checkpoint")
    done = table(folder)
    assert done.returncode == 1
    assert f"[1/2] {found[0].label} ({bad.name}): failed: " in done.stdout
    assert f"[2/2] {found[1].label}" in done.stdout and "finished in" in done.stdout
    *_, last = done.stdout.splitlines()
    assert last.startswith(f"failed: {found[0].label}: ") and f"{bad.name}/log.txt)" in last
    assert "last.ckpt is no checkpoint that simco-pretrain can continue" in last
    assert "| failed" in done.stdout and "cells: 1 of 2 finished" in done.stdout

    broken.unlink()
    done = table(folder)
    assert done.returncode == 0 and "1 run to make" in done.stdout, done.stdout
    assert "cells: 2 of 2 finished" in done.stdout and not (bad / "failed.txt").exists()


@pytest.mark.slow
def test_two_copies_on_one_folder_run_nothing_twice(folder):
    for copy in [start(folder), start(folder)]:
        text, _ = copy.communicate(timeout=300)
        assert copy.returncode in (0, 2), text  # 2: the other one is at the last of them
    for cell in cells(folder):
        # A copy that comes to it later finds it finished.
        assert (cell / "log.txt").read_text().count("epoch 1/1") == 1
        assert (cell / "summary.json").exists()


def test_a_run_without_its_script_keeps_its_lock(tmp_path):
    held = lock(tmp_path / "lock")
    child = subprocess.Popen(["sleep", "60"], pass_fds=[held])
    os.close(held)
    assert lock(tmp_path / "lock") is None
    child.kill()
    child.wait()
    again = lock(tmp_path / "lock")
    assert again is not None
    os.close(again)


def test_a_cell_of_another_process_is_left_to_it(tmp_path):
    held = lock(tmp_path / "lock")
    assert held is not None and lock(tmp_path / "lock") is None
    launch.run_cell(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"lock"}
    os.close(held)
    again = lock(tmp_path / "lock")
    assert again is not None
    os.close(again)


def until_epoch(folder, epoch):
    for _ in range(1200):
        found = list(folder.glob("runs/tables/cells/*/metrics.csv"))
        if found and found[0].read_text().count("\n") > epoch:
            return
        time.sleep(0.05)
    raise AssertionError("it does not get that far")


@pytest.mark.slow
def test_interrupted_killed_and_completed(folder):
    long = ["max_epochs=30", "--only", "equal"]
    script = start(folder, *long)
    until_epoch(folder, 1)
    script.terminate()
    text, _ = script.communicate(timeout=120)
    assert script.returncode == 130, text
    assert "| unfinished" in text and "the same command goes on" in text
    (cell,) = cells(folder)
    assert not (cell / "summary.json").exists() and not (cell / "failed.txt").exists()

    done = len((cell / "metrics.csv").read_text().splitlines())
    script = start(folder, *long)
    until_epoch(folder, done)
    os.killpg(script.pid, signal.SIGKILL)  # the run with it
    script.communicate(timeout=120)
    assert not (cell / "summary.json").exists()

    end = table(folder, *long)
    assert end.returncode == 0, end.stdout + end.stderr
    rows = (cell / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows[1:]] == [str(epoch) for epoch in range(30)]
    assert starts(cell) == 3 and (cell / "log.txt").read_text().count("continues from") == 2


def test_the_reason_of_a_killed_run(tmp_path):
    log = tmp_path / "log.txt"
    log.write_text("before\n---- now\n")
    start = log.stat().st_size
    with open(log, "a") as file:
        file.write("epoch 1/3\nepoch 2/3\n")
    expected = "killed by SIGKILL (out of memory?), after: epoch 2/3\n"
    assert launch._reason(log, start, -signal.SIGKILL) == expected
    assert launch._reason(log, start, 1) == "epoch 2/3\n"
    assert launch._reason(log, log.stat().st_size, 1) == "no word of it\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher, count",
    [(["joblib", "--jobs", "2"], 2), (["submitit_local", "--only", "equal"], 1)],
    ids=["joblib", "submitit"],
)
def test_other_launchers(launcher, count, folder):
    done = table(folder, "--launcher", *launcher)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [starts(cell) for cell in cells(folder)] == [1] * count
    assert f"cells: {count} of 2 finished" in done.stdout


def test_the_slurm_launcher_composes():
    given = ["hydra/launcher=simco_slurm", "hydra.launcher.partition=gpu"]
    with initialize_config_module("solo_configs", version_base="1.3"):
        cfg = compose(overrides=given, return_hydra_config=True)
    launcher = cfg.hydra.launcher
    assert launcher._target_.endswith("SlurmLauncher")
    assert (launcher.partition, launcher.gpus_per_node, launcher.tasks_per_node) == ("gpu", 1, 1)
    assert launcher.max_num_timeout > 0  # a job whose time is over continues


def test_runs_for_slurm_are_those_of_its_gpus(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    script.Script(given("--launcher", "slurm", "--dry", "precision=16-mixed")).announce()
    out = capsys.readouterr().out
    assert "no estimate of time and disk: the runs are made on other machines" in out
    assert "trains in 32-true" not in out


@pytest.mark.parametrize(
    "given, message",
    [
        (["table55"], "table55 is none of the tables"),
        (["--scale", "huge"], "scale 'huge' is none of mini, paper, smoke"),
        (["seed=6"], "seed is set by SEEDS (--seeds)"),
        (["--only", "512"], "--only 512: is none of cross entropy, its hardness W, equal"),
        (["max_epoch=1"], "max_epoch is no key of the runner; did you mean max_epochs?"),
        (["--jobs", "2"], "--jobs is for --launcher joblib, not serial"),
        (["--launcher", "joblib", "--jobs", "0"], "--jobs 0: must be 1 or more"),
        (["--seed", "1"], "unrecognized arguments: --seed"),
    ],
)
def test_what_does_not_fit_is_said_before_anything_is_run(
    given, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["simco-table", NAME, "--scale", "smoke", *given])
    with pytest.raises(SystemExit) as end:
        table_command.main()
    assert end.value.code not in (0, None)
    assert message in f"{end.value.code} {capsys.readouterr().err}"
    assert not list(tmp_path.iterdir())


def test_a_launcher_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: None)
    assert launch.launcher_name("serial") == "basic"
    with pytest.raises(ValueError, match=r"needs the package hydra-submitit-launcher: pip install"):
        launch.launcher_name("slurm")
    with pytest.raises(ValueError, match="(?s)launcher slrm: .*basic"):
        launch.launcher_name("slrm")


def test_runs_at_a_time_take_gpus_of_their_own(tmp_path, monkeypatch):
    def take(devices, accelerator="auto"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7,9")
        cfg = OmegaConf.create({"devices": devices, "accelerator": accelerator})
        cell_process._take_gpus(cfg, tmp_path)
        return os.environ["CUDA_VISIBLE_DEVICES"]

    # With more runs than GPUs, those that have one run get a second.
    assert [take("1") for _ in range(4)] == ["4", "7", "9", "4"]
    assert take(2) == "7,9"
    assert take(3) == take([0, 1]) == take("1", "cpu") == "4,7,9"


def test_only_tables_that_have_what_is_named(tmp_path):
    tables = [read_table(name, read_scale("mini")) for name in ("table5", "table2")]
    cells = {t.name: table_and_cells(t.name, "mini", tmp_path)[1] for t in tables}
    chosen = _chosen(tables, cells, "64,SimCo")
    assert [(c.table, c.row, c.column) for c in chosen] == [("table5_batch_size", "SimCo", "64")]
    assert {c.column for c in _chosen(tables, cells, "0.5")} == {"0.5"}
    assert len(_chosen(tables, cells, "")) == 25


@pytest.mark.slow
def test_a_figure_of_an_analysis(folder):
    command = ["-m", "simco_methods.table", "figure3", "--scale", "smoke", *LAYOUT[2:]]
    done = run_script(*command, "--out", "it's #1", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "cells: 10 of 10 finished" in done.stdout and "10 cells (0 finished), 1 run" in done.stdout
    )
    (plan,) = folder.glob("it's #1/smoke/figure3*/plan.json")
    report = run_script("-m", "simco_methods.report", plan.parent, "--out", "there", cwd=folder)
    assert report.returncode == 0, report.stderr
    assert (folder / "there" / plan.parent.name / "table.md").exists()


def test_a_lost_job_is_not_the_end_of_the_report(tmp_path, monkeypatch, capsys):
    def lose(*_):
        raise RuntimeError("the node is gone")

    monkeypatch.setattr(script, "launch", lose)
    monkeypatch.chdir(tmp_path)
    assert script.Script(given()).run() == 2
    out = capsys.readouterr().out
    assert "the launcher ended early (RuntimeError('the node is gone'))" in out
    assert "cells: 0 of 2 finished" in out and "2 runs not ended" in out


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    launch.run_cell(tmp_path)
    assert "lock: its file system has no locks (flock)" in (tmp_path / "failed.txt").read_text()


def test_data_are_downloaded_before_the_runs_and_never_dry(tmp_path, monkeypatch, capsys):
    asked = []

    def download(root, split, download):
        asked.append((str(root), split, download))
        raise RuntimeError("no network")

    monkeypatch.setattr(datasets, "_read_svhn", download)
    loader = datasets._torchvision("svhn", download)
    info = dataclasses.replace(datasets.DATASETS["svhn"], load=loader)
    monkeypatch.setitem(datasets.DATASETS, "svhn", info)
    cells = [c for c in table_and_cells("table8", "paper", tmp_path)[1] if c.column == "SVHN"]
    cost.fetch([cell.run.cfg for cell in cells])
    assert asked == [(str(tmp_path), "train", False), (str(tmp_path), "train", True)]
    assert "svhn cannot be had: svhn could not be downloaded" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError, match="svhn was not found in"):
        probe.measure(cells[0].run.cfg, 1, tmp_path / "run")
    assert asked[2:] == [(str(tmp_path), "train", False)]


def test_a_probe_leaves_nothing_of_one_kind_beside_the_next(tmp_path, monkeypatch):
    beside = []

    def measure(cfg, batches, folder):
        beside.append(len([path for path in tmp_path.iterdir() if path.is_dir()]))
        (folder / "checkpoint").write_bytes(bytes(1000))
        if cfg.fails:
            raise OSError(28, "No space left on device")
        return probe.Speed(100.0, 10, 1000)

    monkeypatch.setattr(probe, "measure", measure)
    asked, answers = tmp_path / "asked.json", tmp_path / "answers.json"
    configs = {"a": {"fails": False}, "b": {"fails": True}, "c": {"fails": False}}
    write_json(asked, {"batches": 1, "configs": configs})
    probe.main([str(asked), str(answers)])
    assert beside == [1, 1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.json", "asked.json"]
    found = json.loads(answers.read_text())
    assert found["a"]["folder_bytes"] == 1000 and "No space left" in found["b"]["error"]


def test_tables_settings_and_options_in_any_order():
    def read(*words):
        return vars(table_command._arguments(list(words)))

    expected = read("table5", "lr=1", "--seeds", "5", "6", "--dry")
    assert expected["arguments"] == ["table5", "lr=1"] and expected["seeds"] == [5, 6]
    assert read("--seeds", "5", "6", "table5", "lr=1", "--dry") == expected
    assert read("table5", "--dry", "--seeds", "5", "6", "lr=1") == expected
    for words in ([], ["--dry"], ["table5", "--seeds", "five"]):
        with pytest.raises(SystemExit) as ended:
            read(*words)
        assert ended.value.code == 2
