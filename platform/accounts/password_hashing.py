"""One password at a time: the check of one takes a third of a second of a processor, and any caller may ask for it."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from common.errors import RateLimited

# Threads of a process that wait for the lock; each is one that serves no other request.
MAX_WAITING = 4
WAIT_SECONDS = 5.0
POLL_SECONDS = 0.05
RETRY_SECONDS = 2
_waiting = threading.BoundedSemaphore(MAX_WAITING)


@contextmanager
def password_hashing() -> Iterator[None]:
    """The right to hash a password, which one thread of all processes on this host has.

    A file lock: the kernel releases it when its process dies. Raises RateLimited where MAX_WAITING threads of this
    process wait already, and after WAIT_SECONDS.
    """
    if not _waiting.acquire(blocking=False):
        raise _busy()
    try:
        folder = settings.ENV.run_dir
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(folder / "password-hashing.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(file)
            yield
        finally:
            os.close(file)
    finally:
        _waiting.release()


def _lock(file: int) -> None:
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise _busy() from None
        time.sleep(POLL_SECONDS)


def _busy() -> RateLimited:
    return RateLimited(
        "Many logins are being checked. Try again in a few seconds.", headers={"Retry-After": str(RETRY_SECONDS)}
    )
