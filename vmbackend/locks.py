"""Locks between threads and processes: flock on a file, released by the kernel when its owner dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.1


def _try_lock(path: Path, operation: int) -> int | None:
    """Return the locked descriptor, or None if it is locked elsewhere (or the file was just removed)."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_mode & 0o077:
            os.fchmod(descriptor, 0o600)  # of an earlier version: every user who may open it may lock it
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        # Lock files are removed while they are locked: a lock on a removed file protects nothing.
        if os.fstat(descriptor).st_nlink:
            return descriptor
    except BlockingIOError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


@contextmanager
def try_lock(path: Path, *, shared: bool = False) -> Iterator[bool]:
    """Hold the lock for the block if it is free; yields whether it was."""
    descriptor = _try_lock(path, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def wait_lock(path: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Hold the lock for the block; `waiting` is called between attempts and may raise to stop waiting."""
    while (descriptor := _try_lock(path, fcntl.LOCK_EX)) is None:
        waiting()
        time.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)
