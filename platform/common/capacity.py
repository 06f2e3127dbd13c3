"""Places of a process for work that lasts, over all accounts and for each one, so that none takes every place."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class CapacityUsedUp(Exception):
    """The error that no place is free. `own`: the account has all that it may have."""

    def __init__(self, *, own: bool) -> None:
        self.own = own
        super().__init__()


class AccountCapacity:
    """A counter of places in use. Safe in many threads."""

    def __init__(self, total: int, per_account: int) -> None:
        self._total = total
        self._per_account = per_account
        self._used: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def reserve(self, account_id: str) -> Iterator[None]:
        """Reserve a place for this account, until the context ends. Raise CapacityUsedUp if none is free."""
        with self._lock:
            if self._used[account_id] >= self._per_account:
                raise CapacityUsedUp(own=True)
            if self._used.total() >= self._total:
                raise CapacityUsedUp(own=False)
            self._used[account_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._used[account_id] -= 1
                if not self._used[account_id]:
                    del self._used[account_id]

    @property
    def used(self) -> int:
        """Return places in use now."""
        return self._used.total()
