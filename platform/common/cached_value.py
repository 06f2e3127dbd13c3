"""Values that cost too much for each request and may be some seconds old."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class CachedValue(Generic[T]):
    """A value that each process computes at most once in `seconds`.

    If callers come together, one computes the value, and the others wait for it. What `compute` raises is raised to all
    of them; the next caller tries again.
    """

    def __init__(self, compute: Callable[[], T], seconds: float) -> None:
        self._compute, self._seconds = compute, seconds
        self._lock = threading.Lock()
        self._found: tuple[float, T] | None = None
        self._failed: tuple[float, Exception] | None = None

    def get(self) -> T:
        asked_at = time.monotonic()
        with self._lock:
            if self._found is not None and time.monotonic() - self._found[0] < self._seconds:
                return self._found[1]
            # Callers who have waited for an attempt that failed do not wait for another one, each after the other.
            if self._failed is not None and self._failed[0] > asked_at:
                raise self._failed[1]
            return self._computed()

    def _computed(self) -> T:
        try:
            found = self._compute()
        except Exception as error:
            self._failed = time.monotonic(), error
            raise
        # From its end: if it takes longer than `seconds`, those who waited do not compute it one by one.
        self._found, self._failed = (time.monotonic(), found), None
        return found

    def invalidate(self) -> None:
        with self._lock:
            self._found = None
