"""The processes of a run: their environment is checked before they start, and they end together.

On one machine process 0 starts the others through Lightning; with several, torchrun or srun starts
all. A process of which another has ended would wait for it, as a rule for half an hour.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

_LAUNCHER = "SIMCO_LAUNCHER"  # the process id of process 0, for those that it starts
_NUMBERS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "WORLD_SIZE", "SLURM_PROCID")
_PR_SET_PDEATHSIG = 1  # of Linux's prctl
# Seconds for a collective to notice that a process is gone, and for processes that are done to end.
_NOTICE, _END = 5, 10

_children: list[subprocess.Popen] = []  # they outlive a job of a sweep, and train the next one


def end_with_launcher() -> None:
    """Ends this process with the one that started it, if that is process 0 or torchrun.

    Called before anything that takes long. Linux alone has a way for a process that waits.
    """
    child = os.environ.get("LOCAL_RANK", "0") != "0"
    parent = os.environ.get(_LAUNCHER, "") if child else ""
    if sys.platform == "linux" and (parent or "TORCHELASTIC_RUN_ID" in os.environ):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if parent and os.getppid() != int(parent):  # it has ended meanwhile
            sys.exit(1)


# ---- before they start ---------------------------------------------------------------------------


def check_environment() -> None:
    """Holds the numbers that a launcher sets to being numbers; Lightning reads some of them where
    it is imported.

    Raises:
        ValueError: the first that is none.
    """
    for name in _NUMBERS:
        value = os.environ.get(name, "0")
        if not (value.isascii() and value.isdecimal()):
            raise ValueError(
                f"the environment's {name}={value!r} must be a whole number: torchrun or srun "
                "sets it; unset it to start without them"
            )


def check_processes(trainer: Trainer) -> None:
    """Checks that the processes which a launcher has started are those of the config, and that
    they will find each other.

    Raises:
        ValueError: what does not fit, and what to set.
    """
    import torch.distributed as dist
    from lightning.pytorch.plugins.environments import TorchElasticEnvironment

    from simco_methods.runner.rank import process_rank

    devices, nodes, rank = trainer.num_devices, trainer.num_nodes, process_rank()
    environment = getattr(trainer.strategy, "cluster_environment", None)
    if environment is None and TorchElasticEnvironment.detect():
        environment = TorchElasticEnvironment()
    if environment is not None:
        environment.validate_settings(num_devices=devices, num_nodes=nodes)
    if rank >= devices * nodes:
        raise ValueError(
            f"this is process {rank} of a launcher's, counted from 0, and the config has "
            f"{devices * nodes}: set devices and num_nodes to what is started, and strategy=ddp"
        )
    if rank != trainer.global_rank:
        raise ValueError(
            f"the environment says that this is process {rank}, and Lightning that it is "
            f"{trainer.global_rank}: unset RANK, or start by torchrun or srun"
        )
    if environment is None or dist.is_initialized():
        return
    port = os.environ.get("MASTER_PORT", "1")
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(
            f"the environment's MASTER_PORT={port!r} must be a port from 1 to 65535; unset it to "
            "have a free one chosen"
        )
    agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun listens
    address, port = environment.main_address, environment.main_port
    try:
        socket.getaddrinfo(address, port)
    except (OSError, UnicodeError) as error:
        raise ValueError(
            f"MASTER_ADDR={address!r} cannot be resolved ({error}): set it to the address of the "
            "machine of process 0, or unset it if all processes are on this one"
        ) from error
    if rank == 0 and not agent:
        _check_port(address, port)


def _check_port(address: str, port: int) -> None:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        server = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise ValueError(_not_listening(port, error)) from error
    with server:
        try:
            socket.create_connection((address, port), timeout=5).close()
        except OSError as error:
            raise ValueError(
                f"MASTER_ADDR={address!r}: process 0 runs here and cannot be reached there "
                f"({error}): set it to an address of this machine, or unset it if all processes "
                "are on this one"
            ) from error


def _not_listening(port: int, error: Exception) -> str:
    free = "set MASTER_PORT to a free port, or unset it to have one chosen"
    if getattr(error, "errno", None) == errno.EADDRINUSE or "EADDRINUSE" in str(error):
        return f"port {port} (MASTER_PORT) is in use{_holder(port)}: {free}"
    return f"process 0 cannot listen on port {port} (MASTER_PORT; {error}): {free}"


def _holder(port: int) -> str:
    """`` by process N (NAME)``, as far as Linux shows it to this user."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/net/{table}", encoding="ascii") as lines:
            for line in list(lines)[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:  # listens
                    sockets.add(f"socket:[{fields[9]}]")
    for descriptor in Path("/proc").glob("[0-9]*/fd/*") if sockets else ():
        with contextlib.suppress(OSError):
            if os.readlink(descriptor) in sockets:
                process = descriptor.parents[1]
                return f" by process {process.name} ({(process / 'comm').read_text().strip()})"
    return ""


# ---- while they train ----------------------------------------------------------------------------


@contextlib.contextmanager
def ended_together(trainer: Trainer) -> Iterator[None]:
    """Around a training: no process that this one has started, or waits for, is left behind.

    Raises:
        RunStopped: the processes do not find each other, or another one has ended.
    """
    from simco_methods.command import memory_fault
    from simco_methods.runner.stopping import RunStopped

    strategy, over = trainer.strategy, threading.Event()
    set_up = strategy.setup_environment

    def watch() -> None:
        if _children:
            threading.Thread(target=_watch, args=(over,), daemon=True, name="processes").start()

    def setup_environment() -> None:
        _adopt(strategy.launcher)
        watch()
        try:
            set_up()
        except (RuntimeError, ValueError, OSError) as error:
            raise RunStopped(_not_together(error)) from error

    if hasattr(strategy, "cluster_environment"):
        if os.environ.get("LOCAL_RANK", "0") == "0":
            os.environ[_LAUNCHER] = str(os.getpid())
        strategy.setup_environment = setup_environment
    try:
        yield
    except Exception as error:
        over.set()
        # Of what is not this process's own, torch says that it cannot reach another one.
        own = isinstance(error, RunStopped) or memory_fault(error)
        ended = "" if own or not isinstance(error, RuntimeError) else _first_ended(2)
        _end_children(0)
        if ended:
            raise RunStopped(ended) from error
        raise
    finally:
        over.set()


def _adopt(launcher: object) -> None:
    """Takes the processes that Lightning has just started out of the hands of its observer, which
    would kill this process too, without a word."""
    started = getattr(launcher, "procs", None)
    if started:
        _children[:] = launcher.procs = list(started)
        started.clear()
        atexit.register(_end_children, _END)


def _watch(over: threading.Event) -> None:
    """Ends all if one ends before ``over`` and the main thread, which may wait for it, does not."""
    import torch.distributed as dist

    while not (ended := _first_ended(0)):
        if over.wait(0.2):
            return
    if over.wait(_NOTICE if dist.is_initialized() else 0):
        return
    print(f"simco-pretrain: {ended}", file=sys.stderr, flush=True)
    _end_children(0)
    interrupted = any(child.returncode in (130, -signal.SIGINT) for child in _children)
    os._exit(130 if interrupted else 1)


def _first_ended(wait: float) -> str:
    """The first of the processes that has failed within ``wait`` seconds, in words, or ""."""
    from simco_methods.runner.stopping import MENDED

    deadline = time.monotonic() + wait
    while True:
        for rank, child in enumerate(_children, 1):
            if code := child.poll():
                how = f"status {code}" if code > 0 else signal.Signals(-code).name
                memory = ", as by the system when memory is short" if -code == 9 else ""
                return (
                    f"process {rank} of {len(_children) + 1} on this machine ended with {how}"
                    f"{memory}, and the others with it; {MENDED}"
                )
        if time.monotonic() >= deadline:
            return ""
        time.sleep(0.1)


def _end_children(wait: float) -> None:
    deadline = time.monotonic() + wait
    for child in _children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0, deadline - time.monotonic()))
        child.kill()  # it writes nothing


def _not_together(error: Exception) -> str:
    address, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT", "")
    if "EADDRINUSE" in str(error):
        return _not_listening(int(port), error)
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return f"the processes do not find each other at {address}, port {port}: {reason}"
