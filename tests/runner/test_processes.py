"""Processes of a run that cannot start, or that end while others wait for them."""

import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch.distributed as dist
from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment

from simco_methods.runner import processes
from simco_methods.runner.processes import check_environment, check_processes, ended_together
from simco_methods.runner.stopping import RunStopped
from tests.helpers import group_members, run_script, start_pretraining, wait_for_group_to_end
from tests.helpers import processes as running

LAUNCHERS = (*processes._NUMBERS, "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in (*LAUNCHERS, "TORCHELASTIC_USE_AGENT_STORE", processes._LAUNCHER):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def taken():
    """A port at which this process listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def trainer(devices=2, nodes=1, rank=0, environment=LightningEnvironment):
    strategy = SimpleNamespace(cluster_environment=environment()) if environment else object()
    return SimpleNamespace(
        num_devices=devices, num_nodes=nodes, global_rank=rank, strategy=strategy
    )


# ---- before they start ---------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["abc", "", "-1", "1.0", "\u0661"])
@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE"])
def test_a_launcher_s_number_that_is_none(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=f"{name}={value!r} must be a whole number"):
        check_environment()


def test_a_port_that_is_in_use_names_who_has_it(taken, monkeypatch):
    monkeypatch.setenv("MASTER_PORT", str(taken))
    with pytest.raises(ValueError, match=rf"port {taken} \(MASTER_PORT\) is in use") as error:
        check_processes(trainer())
    assert f" by process {os.getpid()} (" in str(error.value)
    assert "set MASTER_PORT to a free port, or unset it" in str(error.value)
    # Not by those that only connect to it.
    monkeypatch.setenv("LOCAL_RANK", "1")
    check_processes(trainer(rank=1))
    # Nor where torchrun listens, for all that it has started.
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    check_processes(trainer(environment=TorchElasticEnvironment))


@pytest.mark.parametrize("port", ["abc", "99999", "65536", "0", "-1", "", "29500.5"])
def test_a_port_that_is_none(port, monkeypatch):
    monkeypatch.setenv("MASTER_PORT", port)
    with pytest.raises(ValueError, match=f"MASTER_PORT={port!r} must be a port from 1 to 65535"):
        check_processes(trainer())


def test_a_free_port_and_none():
    check_processes(trainer())
    check_processes(trainer(devices=1, environment=None))


@pytest.mark.parametrize(
    "address, reason",
    [
        ("nowhere.invalid", "cannot be resolved"),
        ("", "cannot be resolved"),
        ("a" * 70, "cannot be resolved"),
        ("192.0.2.1", "process 0 runs here and cannot be reached there"),
    ],
)
def test_an_address_that_leads_nowhere(address, reason, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", address)
    connect = socket.create_connection  # without the wait for an address of nobody's
    monkeypatch.setattr(socket, "create_connection", lambda to, timeout: connect(to, 0.2))
    with pytest.raises(ValueError, match=f"MASTER_ADDR={address!r}") as error:
        check_processes(trainer())
    assert reason in str(error.value)


@pytest.mark.parametrize(
    "environment, settings, message",
    [
        ({"LOCAL_RANK": "5"}, {"rank": 5}, "process 5 of a launcher's, .* the config has 2"),
        ({"RANK": "1"}, {}, "says that this is process 1, and Lightning that it is 0"),
        (
            {"TORCHELASTIC_RUN_ID": "a", "WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"},
            {"devices": 1, "environment": None},
            r"does not match the world size \(2\)",
        ),
    ],
)
def test_processes_that_are_not_the_config_s(environment, settings, message, monkeypatch):
    """The last of them: torchrun's two would each train the run of one process."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message):
        check_processes(trainer(**settings))


def test_a_port_that_is_taken_in_between(taken, monkeypatch):
    """As torch says it, whatever its version."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(taken))

    def set_up():
        dist.TCPStore("127.0.0.1", taken, 2, is_master=True)

    run = trainer()
    run.strategy.setup_environment, run.strategy.launcher = set_up, None
    with pytest.raises(RunStopped, match=rf"^port {taken} \(MASTER_PORT\) is in use by process"):
        with ended_together(run):
            run.strategy.setup_environment()


# ---- while others wait ---------------------------------------------------------------------------

# Process 0, which has started another and waits for it: as Lightning and torch do.
WAITS = """
import subprocess, sys, time
from types import SimpleNamespace
from simco_methods.runner.processes import ended_together

started = [subprocess.Popen([sys.executable, "-c", {child!r}])]
strategy = SimpleNamespace(
    cluster_environment=None,
    launcher=SimpleNamespace(procs=started),
    setup_environment=lambda: {wait},
)
with ended_together(SimpleNamespace(strategy=strategy)):
    strategy.setup_environment()
"""
KILLED = "import os; os.kill(os.getpid(), 9)"
ENDS = "process 1 of 2 on this machine ended with"


@pytest.mark.parametrize(
    "child, how",
    [
        (KILLED, "SIGKILL, as by the system when memory is short"),
        ("raise SystemExit(3)", "status 3"),
    ],
)
def test_one_that_ends_before_the_group_exists_ends_all(child, how, tmp_path):
    done = run_script("-c", WAITS.format(child=child, wait="time.sleep(600)"), cwd=tmp_path)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"simco-pretrain: {ENDS} {how}, and the others with it")


def test_an_error_here_ends_those_that_were_started(monkeypatch):
    child = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(processes, "_children", [])
    run = trainer()
    run.strategy.launcher = SimpleNamespace(procs=[child])
    run.strategy.setup_environment = lambda: [][1]
    start = time.monotonic()
    with pytest.raises(IndexError), ended_together(run):
        run.strategy.setup_environment()
    assert child.wait(5) == -signal.SIGKILL and time.monotonic() - start < 5
    processes.atexit.unregister(processes._end_children)


LIVES = "from simco_methods.runner.processes import *; end_with_launcher(); print(1, flush=True); "
LIVES += "time.sleep(600)"
STARTS = """
import os, subprocess, sys, time
env = {{**os.environ, "LOCAL_RANK": "1", "{name}": {value}}}
subprocess.Popen([sys.executable, "-c", {lives!r}], env=env)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone ends a process with its parent")
@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize(
    "name, value", [(processes._LAUNCHER, "str(os.getpid())"), ("TORCHELASTIC_RUN_ID", "'a'")]
)
def test_a_process_ends_with_the_one_that_started_it(name, value, signum, tmp_path):
    program = ["-c", STARTS.format(name=name, value=value, lives=LIVES)]
    process = start_pretraining(tmp_path, program=program)
    assert process.stdout.readline() == "1\n" and len(group_members(process.pid)) == 2
    process.send_signal(signum)  # to it alone
    wait_for_group_to_end(process.pid, 5)
    process.communicate()


def test_a_process_whose_launcher_has_ended_does_not_start(tmp_path):
    env = {"LOCAL_RANK": "1", processes._LAUNCHER: "1"}
    assert run_script("-c", LIVES, cwd=tmp_path, **env).returncode == 1


def test_a_process_stays_the_one_of_its_launcher(monkeypatch):
    """As in the second job of a sweep."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv(processes._LAUNCHER, str(os.getppid()))
    run = trainer(rank=1)
    run.strategy.setup_environment, run.strategy.launcher = lambda: None, None
    with ended_together(run):
        run.strategy.setup_environment()
    assert os.environ[processes._LAUNCHER] == str(os.getppid())


# ---- as a command --------------------------------------------------------------------------------

TWO = [
    "--config-name=digits/simco",
    "backbone={name:micro_resnet,kwargs:{channels:[8,8,16,16]}}",
    "accelerator=cpu",
    "max_epochs=1",
    "limit_train_batches=2",
    "limit_val_batches=1",
    "num_sanity_val_steps=0",
    "knn_eval.offline=false",
    "data.num_workers=0",
    "optimizer.batch_size=16",
    "devices=2",
    "strategy=ddp",
    "output_dir=run",
]
# What process 1 alone meets before there is a group.
FAULTS = {
    "a config that is not allowed": "sys.argv.append('optimizer.lr=-1')",
    "data that cannot be read": "train.read_images = fail(OSError('photos: not readable'))",
    "no memory": "train.read_images = fail(MemoryError())",
    "an error that was not foreseen": "train.read_images = fail(KeyError('only here'))",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
}
FAILS = """
import os, signal, sys
from simco_methods.pretrain import main
from simco_methods.runner import train

def fail(error):
    def failing(*args, **kwargs):
        raise error
    return failing

if os.environ.get("LOCAL_RANK") == "1":
    {fault}
main()
"""


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=[] if fault.startswith("data") else pytest.mark.slow)
        for fault in FAULTS
    ],
)
def test_what_one_process_meets_ends_both(fault, tmp_path):
    (tmp_path / "fails.py").write_text(FAILS.format(fault=FAULTS[fault]))
    process = start_pretraining(tmp_path, *TWO, program=["fails.py"])
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 1, errors
    assert ("Traceback" in errors) == (fault == "an error that was not foreseen"), errors
    assert errors.splitlines()[-1].startswith(f"simco-pretrain: {ENDS} "), errors
    wait_for_group_to_end(process.pid, 10)
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.slow
def test_a_port_in_use_ends_a_command(taken, tmp_path):
    process = start_pretraining(tmp_path, *TWO, MASTER_PORT=str(taken))
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 1 and not (tmp_path / "run").exists()
    (line,) = errors.splitlines()
    assert line.startswith(f"simco-pretrain: port {taken} (MASTER_PORT) is in use by process ")
    wait_for_group_to_end(process.pid, 10)


@pytest.mark.slow
@pytest.mark.parametrize("later", [0, 2, 6])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_to_process_0_alone_ends_both(signum, later, tmp_path):
    """Some seconds after it has started the other."""
    process = start_pretraining(tmp_path, *TWO, "max_epochs=200")
    deadline = time.monotonic() + 200
    while not any(parent == process.pid for _, parent, _ in running()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(later)
    process.send_signal(signum)
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (-signum, 128 + signum) and "Traceback" not in errors, errors
    wait_for_group_to_end(process.pid, 10)
