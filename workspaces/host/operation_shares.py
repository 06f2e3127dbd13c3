"""How many threads of a vmhost the operations of one account have at a time.

Operations take a thread from their claim to their outcome: minutes, where a registry answers slowly. An account with as
many workspaces as the host has threads would otherwise delay those of all others, and so would two or three of them.
What is beyond its share stays queued, where it has no cost but its row.
"""

from __future__ import annotations

import threading
from collections import deque

from common.work.shares import Shares


class OperationShares:
    """The rule of `common.work.shares`, and what is deferred by it. Some threads are for no operation: reconciliation,
    network policies and requests to the host need them. In memory: what a dead process deferred is notified of by the
    next one.
    """

    def __init__(self, threads: int) -> None:
        self._lock = threading.Lock()
        self._shares = Shares(threads - threads // 8)
        self._deferred: dict[str, deque[str]] = {}

    def begin_operation(self, account_id: str, operation_id: str) -> bool:
        """Whether the account has a thread left; if so `end_operation` must follow. Else the operation is deferred."""
        with self._lock:
            waiting = self._deferred.get(account_id, deque())
            if self._shares.has_place(account_id):
                self._shares.begin(account_id)
                if operation_id in waiting:  # the host is notified again of what stays queued
                    self._take(account_id, operation_id)
                return True
            if operation_id not in waiting:
                self._deferred.setdefault(account_id, waiting).append(operation_id)
            return False

    def end_operation(self, account_id: str) -> str | None:
        """A deferred operation that may begin, of which the host should be notified: that of the account whose turn it
        is.
        """
        with self._lock:
            self._shares.end(account_id)
            chosen = self._shares.next_account(self._deferred)
            return None if chosen is None else self._take(chosen, self._deferred[chosen][0])

    def _take(self, account_id: str, operation_id: str) -> str:
        waiting = self._deferred[account_id]
        waiting.remove(operation_id)
        if not waiting:
            del self._deferred[account_id]
        return operation_id
