"""One password at a time: the check of one takes a third of a second of a processor, and any caller may ask for it.

From enough addresses any number of callers keep that queue full. So browsers that have logged in before have one of
their own: who is in it knew a password, and has attempts of its own (`accounts.login`).
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from common.errors import RateLimited

# Threads of a process that wait in a queue; each is one that serves no other request.
MAX_WAITING = 4
WAIT_SECONDS = 5.0
POLL_SECONDS = 0.05
RETRY_SECONDS = 2
_waiting = {known: threading.BoundedSemaphore(MAX_WAITING) for known in (False, True)}
_LOCK_FILES = {False: "password-hashing.lock", True: "password-hashing-known.lock"}


@contextmanager
def password_hashing(*, known: bool = False) -> Iterator[None]:
    """Hold the right to hash a password, which one thread of all processes on this host has; `known`: of those that
    serve browsers which have logged in before.

    A file lock: the kernel releases it when its process dies. Raise RateLimited if MAX_WAITING threads of this
    process wait already, and after WAIT_SECONDS.
    """
    if not _waiting[known].acquire(blocking=False):
        raise _busy()
    try:
        folder = settings.ENV.run_dir
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(folder / _LOCK_FILES[known], os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(file)
            yield
        finally:
            os.close(file)
    finally:
        _waiting[known].release()


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
