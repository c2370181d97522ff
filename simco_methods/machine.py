"""What a run was made on: hardware, versions, memory."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from simco_methods import wording

try:
    import resource
except ImportError:  # Windows
    resource = None


def find_device(name: str = "auto") -> torch.device:
    """The device of that name; "auto" is the GPU if there is one, else the CPU.

    Raises:
        ValueError: a device that this machine does not have.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().splitlines()[0][:120]
        raise ValueError(f"device={name}: not on this machine ({reason})") from error
    return device


def hardware(device: torch.device, count: int) -> str:
    """The ``count`` devices of a run, or the processor and the threads that torch uses on it."""
    if device.type == "cuda":
        return f"{count} x {torch.cuda.get_device_name(device)}"
    if device.type != "cpu":
        return f"{count} x {device.type}"
    return f"{_processor()}, {wording.count(torch.get_num_threads(), 'thread')}"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [
                line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
            ]
        return names[0]
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Python and the packages that results depend on."""
    packages = ("simco-methods", "torch", "torchvision", "lightning", "timm", "solo-learn")
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def in_words(versions: Mapping[str, str]) -> str:
    """Versions on one line."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def wait_for_gpu() -> None:
    """Until the GPU, if there is one, has done what it was told."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def free_memory(device: torch.device) -> int:
    """Bytes that can still be had on a GPU, or of the memory of the machine or of the container
    (cgroup v2) that this process is in; 4 GiB if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = []
    try:
        with open("/proc/meminfo", encoding="utf-8") as lines:
            sizes = dict(line.split(":", 1) for line in lines)
        found.append(int(sizes["MemAvailable"].split()[0]) * 2**10)
        limit, taken = (
            Path("/sys/fs/cgroup", f"memory.{name}").read_text(encoding="utf-8").strip()
            for name in ("max", "current")
        )
        if limit != "max":
            found.append(max(0, int(limit) - int(taken)))
    except (OSError, KeyError, ValueError):
        pass
    return min(found, default=4 * 2**30)


def peak_memory_mib(device: torch.device) -> float | None:
    """Peak memory in MiB: of the GPU, on a CPU of this process; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    try:
        # getrusage would count the parent's memory at the time it started this process, too.
        with open("/proc/self/status", encoding="utf-8") as lines:
            return next(int(line.split()[1]) / 2**10 for line in lines if line[:6] == "VmHWM:")
    except (OSError, StopIteration):
        pass
    if resource is None:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
