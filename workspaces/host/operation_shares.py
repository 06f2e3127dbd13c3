"""Limit of the threads of a vmhost that the operations of one account have at a time.

Operations hold a thread from their claim to their outcome: minutes, if a registry answers slowly. An account with as
many workspaces as the host has threads would otherwise delay the operations of all others, and so would two or three
such accounts. Operations beyond the share stay queued, where they cost no more than their row.
"""

from __future__ import annotations

import threading
from collections import deque

from common.work.shares import Shares


class OperationShares:
    """Rule of `common.work.shares`, and the operations that it defers. Some threads are not for operations:
    reconciliation, network policies and requests to the host need them. The shares are in memory: the next process is
    notified of the operations that a dead one deferred.
    """

    def __init__(self, threads: int) -> None:
        self._lock = threading.Lock()
        self._shares = Shares(threads - threads // 8)
        self._deferred: dict[str, deque[str]] = {}

    def begin_operation(self, account_id: str, operation_id: str) -> bool:
        """Return whether the account has a thread left. If so, `end_operation` must follow; else the operation is
        deferred.
        """
        with self._lock:
            waiting = self._deferred.get(account_id, deque())
            if self._shares.has_place(account_id):
                self._shares.begin(account_id)
                if operation_id in waiting:  # the host is notified again of operations that stay queued
                    self._take(account_id, operation_id)
                return True
            if operation_id not in waiting:
                self._deferred.setdefault(account_id, waiting).append(operation_id)
            return False

    def end_operation(self, account_id: str) -> str | None:
        """Return a deferred operation that may begin, of the account whose turn it is. The caller notifies the host of
        it.
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
