"""Changes of SSH access and workloads that a running guest has missed: at its start, resume and wake, and by a look at
all guests of the host, for those that did not answer then or run on without one of them.
"""

from __future__ import annotations

import logging
import queue as queues
import threading
import time
from collections import Counter
from collections.abc import Callable

from django.db import connections
from django.db.models import Exists, OuterRef, Q

from workspaces.audit import record_activity
from workspaces.models import Operation, Workspace
from workspaces.ssh import renew_access
from workspaces.states import Status
from workspaces.workload_changes.services import renew_workloads

logger = logging.getLogger(__name__)

# The limit of all changes together. A guest may let each change wait, and its operation holds a thread of the host.
RENEW_SECONDS = 60.0
KINDS: tuple[tuple[str, Callable[[Workspace, float], str]], ...] = (
    ("ssh_not_changed", renew_access),
    ("workload_not_changed", renew_workloads),
)
# These threads wait for guests that do not answer; no other work of the host waits for them.
THREADS = 4
MOST_PENDING = 2 * THREADS  # so that a guest does not wait behind all guests of another account
# Seconds before the first attempt: a change that an api process sent to the guest before it died has arrived by then,
# or never arrives. This is longer than the limits of those calls.
SETTLE_SECONDS = 25.0
# Seconds to wait after a failed attempt; doubled each time.
FIRST_WAIT, LONGEST_WAIT = 60.0, 3600.0


def renew_guest(row: Workspace) -> None:
    """Renew a guest that has just started, resumed or woken. Changes that could not be applied are recorded, and
    `GuestRenewals` tries them again.
    """
    until = time.monotonic() + RENEW_SECONDS
    for event, renew in KINDS:
        if waits := renew(row, until):
            record_activity(row, event, waits)


class GuestRenewals:
    """Renewals of the guests of one host, whose process looks for stale guests regularly. An attempt that ends with the
    process is made again by the next process.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._queue: queues.SimpleQueue[str | None] = queues.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        # For each stale workspace: when the next attempt may be, and the wait after that one.
        self._next: dict[str, tuple[float, float]] = {}

    def begin(self) -> int:
        """Begin attempts for guests that are due. Return how many. Never waits for a guest."""
        stale = _stale_guests(self._host)
        with self._lock:
            chosen = self._chosen(stale)
            for key in chosen:
                wait = self._next[key][1]
                self._next[key] = time.monotonic() + wait, min(2 * wait, LONGEST_WAIT)
                self._pending.add(key)
                self._queue.put(key)
            if chosen:
                self._start_threads()
        return len(chosen)

    def _chosen(self, stale: list[str]) -> list[str]:
        now = time.monotonic()
        self._next = {key: self._next.get(key, (now + SETTLE_SECONDS, FIRST_WAIT)) for key in stale}
        due = [key for key in stale if key not in self._pending and self._next[key][0] <= now]
        return due[: max(0, MOST_PENDING - len(self._pending))]

    def _start_threads(self) -> None:
        while len(self._threads) < THREADS:
            thread = threading.Thread(target=self._work, name="vmhost-renewals", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """Let the threads end. Attempts that have begun end within RENEW_SECONDS, or with the process."""
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (key := self._queue.get()) is not None:
            try:
                _renew(key)
            except Exception:  # the next attempt may succeed
                logger.exception("changes of %s could not be applied in its guest", key)
            finally:
                self._pending.discard(key)
                connections.close_all()


def _stale_guests(host: str) -> list[str]:
    """Return the guests that run without an operation and have missed a change: the first of each account, then the
    second.
    """
    live = Operation.objects.filter(workspace=OuterRef("pk"), finished_at=None)
    missed = Q(ssh_stale=True) | ~Q(stale_workloads=[])
    rows = Workspace.objects.filter(missed, ~Exists(live), host_id=host, status=Status.RUNNING)
    found = rows.order_by("updated_at", "pk").values_list("account_id", "pk")
    of_account: Counter[str] = Counter()
    places: dict[str, int] = {}
    for account_id, key in found:
        places[key] = of_account[account_id]
        of_account[account_id] += 1
    return sorted(places, key=places.__getitem__)


def _renew(workspace_id: str) -> None:
    row = Workspace.objects.filter(pk=workspace_id, status=Status.RUNNING).first()
    if row is None:
        return
    until = time.monotonic() + RENEW_SECONDS
    for _, renew in KINDS:
        if waits := renew(row, until):
            logger.info("%s: %s", workspace_id, waits)
