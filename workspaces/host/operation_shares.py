"""How many threads of a vmhost the operations of one account have at a time.

Operations take a thread from their claim to their outcome: minutes, where a registry answers slowly. An account with as
many workspaces as the host has threads would otherwise delay those of all others. What is beyond its share stays
queued, where it has no cost but its row.
"""

from __future__ import annotations

import threading
from collections import Counter, deque


class OperationShares:
    """Half of the threads for each account. In memory: what a dead process deferred is notified of by the next one."""

    def __init__(self, threads: int) -> None:
        self._most = max(1, threads // 2)
        self._lock = threading.Lock()
        self._running: Counter[str] = Counter()
        self._deferred: dict[str, deque[str]] = {}

    def begin_operation(self, account_id: str, operation_id: str) -> bool:
        """Whether the account has a thread left; if so `end_operation` must follow. Else the operation is deferred."""
        with self._lock:
            if self._running[account_id] < self._most:
                self._running[account_id] += 1
                return True
            waiting = self._deferred.setdefault(account_id, deque())
            if operation_id not in waiting:  # the host is notified again of what stays queued
                waiting.append(operation_id)
            return False

    def end_operation(self, account_id: str) -> str | None:
        """The operation deferred for longest, of which the host should be notified."""
        with self._lock:
            self._running[account_id] -= 1
            if not self._running[account_id]:
                del self._running[account_id]
            waiting = self._deferred.get(account_id)
            if not waiting:
                return None
            following = waiting.popleft()
            if not waiting:
                del self._deferred[account_id]
            return following
