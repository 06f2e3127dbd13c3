"""What the process `hooks` does: one thread that claims and writes, and many that send and touch no database.

The thread looks for what is due each second, when it is notified and when an attempt ends. As it alone
writes, no transaction of this process waits for another one, and what ended at about the same time is one commit.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from cryptography.fernet import InvalidToken
from django.db import connections
from django.utils import timezone

from common.database_errors import is_database_unavailable
from webhooks import claims
from webhooks.attempts import ClaimedDelivery, Outcome, attempt_make
from webhooks.disabling import deliveries_disable
from webhooks.outcomes import outcomes_record
from webhooks.sharing import DueSubscription, InFlight

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
# While attempts are in flight: what ends within it is one transaction.
GATHER_SECONDS = 0.01
# A receiver that took longer for its last event has one attempt at a time, as one that did not take it: many that
# answer just in time would otherwise have all threads.
SLOW_SECONDS = 5.0
MOST_SLOW = 10_000  # subscriptions that are remembered as such
# Longer than an attempt and the transaction after it; shorter than the supervisor waits for the process.
STOP_SECONDS = 20.0


class Dispatcher:
    """From `start` to `stop`. `attempt` makes one attempt and never raises."""

    def __init__(self, threads: int, attempt: Callable[[ClaimedDelivery], Outcome] = attempt_make) -> None:
        self._attempt = attempt
        self._in_flight = InFlight(threads)
        # As many again for attempts that take long (`sharing`).
        self._pool = ThreadPoolExecutor(2 * threads, thread_name_prefix="attempt")
        self._ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._unwritten: list[Outcome] = []
        # Encrypted under a key that is lost; until the process starts again.
        self._unreadable: set[str] = set()
        # By SLOW_SECONDS, as this process has seen it; in the order of the last time.
        self._slow: dict[str, None] = {}
        self._hanging: set[str] = set()  # with an attempt that takes long, at the last look
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hooks-dispatcher", daemon=True)

    def start(self) -> None:
        """Begin with what is due."""
        self.wake()
        self._thread.start()

    def wake(self) -> None:
        """Look for what is due, without waiting for it."""
        self._woken.set()

    def stop_claiming(self) -> None:
        """Begin no further attempt. Returns at once; may be called by a signal handler."""
        self._stopping.set()
        self._woken.set()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Wait until the attempts in flight have ended and are written, for `seconds` at most.

        What is not written by then is due again when its lease ends.
        """
        self.stop_claiming()
        self._thread.join(seconds)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run_pass(self) -> int:
        """Write what has ended, then begin what is due. Returns how many attempts it began.

        Raises what the database raises; what has ended is then written by the next pass.
        """
        self._write_ended()
        return 0 if self._stopping.is_set() else self._begin_due()

    def _run(self) -> None:
        until = None
        while not self._is_done(until):
            if self._woken.wait(self._look_seconds()) and self._in_flight.total:
                time.sleep(GATHER_SECONDS)
            self._woken.clear()
            if self._stopping.is_set() and until is None:
                until = time.monotonic() + STOP_SECONDS
            try:
                if self.run_pass():  # a share may have been larger than what was due; others get the rest now
                    self._woken.set()
            except Exception as exc:  # the thread must survive whatever may be gone at the next look
                self._after_failure(exc)
        connections.close_all()

    def _look_seconds(self) -> float:
        """Until the next look: earlier where an attempt will leave its thread to what waits."""
        soon = None if self._in_flight.free else self._in_flight.seconds_to_wait
        return LOOK_SECONDS if soon is None else min(LOOK_SECONDS, max(soon, GATHER_SECONDS))

    def _is_done(self, until: float | None) -> bool:
        if until is None:
            return False
        return (not self._in_flight.total and not self._unwritten) or time.monotonic() > until

    def _after_failure(self, exc: Exception) -> None:
        """A connection that failed is not used again; without the pause a lasting failure would take a core."""
        if is_database_unavailable(exc):
            logger.warning("webhooks wait for the database: %s", exc)
        else:
            logger.error("webhooks", exc_info=exc)
        with suppress(Exception):
            connections.close_all()
        time.sleep(LOOK_SECONDS)

    def _write_ended(self) -> None:
        while not self._ended.empty():
            self._unwritten.append(self._ended.get())
        if not self._unwritten:
            return
        try:
            later = outcomes_record(self._unwritten).later
        except Exception as exc:
            if is_database_unavailable(exc):
                raise
            logger.exception("outcomes of webhooks; each is written by itself")
            later = self._write_one_by_one()
        # What is locked stays in flight: its account has no more of the threads for it.
        self._forget([each for each in self._unwritten if each not in later])
        self._unwritten = later

    def _write_one_by_one(self) -> list[Outcome]:
        """One that the database refuses must not keep the others from being written; its lease ends. Returns those
        that are to be written later.
        """
        later: list[Outcome] = []
        while self._unwritten:
            try:
                later += outcomes_record(self._unwritten[:1]).later
            except Exception as exc:
                if is_database_unavailable(exc):
                    self._unwritten += later
                    raise
                logger.exception("the outcome of %s is lost", self._unwritten[0].delivery.id)
            written = self._unwritten.pop(0)
            if written not in later:
                self._forget([written])
        return later

    def _forget(self, outcomes: list[Outcome]) -> None:
        for each in outcomes:
            one = each.delivery
            self._in_flight.attempt_ended(one.subscription_id, one.account_id, is_proven=one.is_proven, began=one.began)
            is_slow = each.duration_ms > SLOW_SECONDS * 1000
            self._slow.pop(one.subscription_id, None)
            if is_slow:
                self._slow[one.subscription_id] = None
        while len(self._slow) > MOST_SLOW:  # a tenant may delete such a subscription and make the next one
            del self._slow[next(iter(self._slow))]

    def _begin_due(self) -> int:
        self._in_flight.now = time.monotonic()
        if not self._in_flight.free or not claims.is_anything_due(timezone.now()):
            return 0
        self._hanging = self._in_flight.slow_subscriptions
        due, switched_off = claims.due_subscriptions(timezone.now())
        for key in switched_off:
            deliveries_disable(key)
        readable = [each for each in due if each.id not in self._unreadable]
        return self._begin([replace(each, is_proven=self._is_proven(each, each.id)) for each in readable])

    def _is_proven(self, found: DueSubscription | ClaimedDelivery, subscription_id: str) -> bool:
        return found.is_proven and subscription_id not in self._slow and subscription_id not in self._hanging

    def _begin(self, due: list[DueSubscription]) -> int:
        try:
            found = claims.deliveries_claim(due, self._in_flight)
        except InvalidToken:
            if len(due) > 1:
                return sum(self._begin([each]) for each in due)
            logger.error("%s is not readable with the keys of this instance; nothing is sent to it", due[0].id)
            self._unreadable.add(due[0].id)
            return 0
        for claimed in found:
            # What it counts as now, also when it ends.
            is_proven = self._is_proven(claimed, claimed.subscription_id)
            each = replace(claimed, is_proven=is_proven, began=self._in_flight.now)
            self._in_flight.attempt_began(each.subscription_id, each.account_id, is_proven=each.is_proven)
            self._pool.submit(self._attempt_and_report, each)
        return len(found)

    def _attempt_and_report(self, delivery: ClaimedDelivery) -> None:
        self._ended.put(self._attempt(delivery))
        self._woken.set()
