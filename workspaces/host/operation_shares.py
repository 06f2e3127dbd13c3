"""How many threads of a vmhost the operations of one account have at a time.

Operations take a thread from their claim to their outcome: minutes, where a registry answers slowly. An account with as
many workspaces as the host has threads would otherwise delay those of all others, and so would two or three of them.
What is beyond its share stays queued, where it has no cost but its row.
"""

from __future__ import annotations

import threading
from collections import Counter, deque


class OperationShares:
    """An account has at most as many threads as it leaves to others: half of them where it is alone, a quarter beside
    one that has its half. Some are for no operation: reconciliation, network policies and requests to the host need
    them. In memory: what a dead process deferred is notified of by the next one.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads - threads // 8
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._deferred: dict[str, deque[str]] = {}

    def begin_operation(self, account_id: str, operation_id: str) -> bool:
        """Whether the account has a thread left; if so `end_operation` must follow. Else the operation is deferred."""
        with self._lock:
            waiting = self._deferred.get(account_id, deque())
            if self._has_room(account_id):
                self._running[account_id] += 1
                if operation_id in waiting:  # the host is notified again of what stays queued
                    self._take(account_id, operation_id)
                return True
            if operation_id not in waiting:
                self._deferred.setdefault(account_id, waiting).append(operation_id)
            return False

    def end_operation(self, account_id: str) -> str | None:
        """A deferred operation that may begin, of which the host should be notified: that of the account with the
        fewest threads which waits for longest.
        """
        with self._lock:
            self._running[account_id] -= 1
            if not self._running[account_id]:
                del self._running[account_id]
            waiting = [each for each in self._deferred if self._has_room(each)]
            if not waiting:
                return None
            chosen = min(waiting, key=self._running.__getitem__)
            return self._take(chosen, self._deferred[chosen][0])

    def _has_room(self, account_id: str) -> bool:
        return self._running[account_id] < self._threads - self._running.total()

    def _take(self, account_id: str, operation_id: str) -> str:
        waiting = self._deferred[account_id]
        waiting.remove(operation_id)
        if not waiting:
            del self._deferred[account_id]
        return operation_id
