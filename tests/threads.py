"""Many callers at the same moment, each in a thread with a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

from django.db import connection

from common.errors import DomainError


def run_at_once(count: int, work: Callable[[int], Any]) -> list[str]:
    """Call `work` with each number in as many threads, which begin together. Returns for each the name of the error
    that it raised, or `done`.
    """
    outcomes, barrier = [""] * count, Barrier(count)

    def one(number: int) -> None:
        barrier.wait(30)
        try:
            work(number)
            outcomes[number] = "done"
        except BaseException as exc:
            outcomes[number] = type(exc).__name__ if isinstance(exc, DomainError) else repr(exc)
        finally:
            connection.close()

    threads = [Thread(target=one, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Until other threads have made it true. Fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not become true"
        time.sleep(0.02)
