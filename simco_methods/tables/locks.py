"""Locks between processes, which end with the last process that holds them, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def lock(path: Path) -> int | None:
    """Takes the lock on the file ``path``.

    Returns:
        Its file descriptor: the lock lasts until it is closed, here and in every process that it
        was handed to (``pass_fds``). None if another process has the lock.

    Raises:
        OSError: a file system that has no locks, by name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise OSError(f"{path}: its file system has no locks (flock): {error}") from error
    return descriptor
