"""How many commands a process runs at once, over all accounts and for each one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from django.conf import settings

from common.errors import RateLimited

RETRY_SECONDS = 5


class CommandCapacity:
    """Counts running commands. Safe in many threads.

    A command that waits for a connection to its guest counts too: its output may take memory as long as it lasts.
    """

    def __init__(self, total: int, per_account: int) -> None:
        self._total = total
        self._per_account = per_account
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def reserve(self, account_id: str) -> Iterator[None]:
        """A place for one command of this account, until the context ends. Raises RateLimited where none is free."""
        with self._lock:
            self._require(self._running[account_id] < self._per_account, "Too many commands of this account run")
            self._require(self._running.total() < self._total, "Too many commands run")
            self._running[account_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[account_id] -= 1
                if not self._running[account_id]:
                    del self._running[account_id]

    def _require(self, free: bool, problem: str) -> None:
        if not free:
            raise RateLimited(f"{problem}; try again later.", headers={"Retry-After": str(RETRY_SECONDS)})


@lru_cache(maxsize=1)
def command_capacity() -> CommandCapacity:
    """The capacity of this process."""
    return CommandCapacity(settings.ENV.commands_max, settings.ENV.commands_per_account)
