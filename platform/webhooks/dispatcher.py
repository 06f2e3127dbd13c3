"""The work of the process `hooks`: one thread claims and writes, and many send and touch no database.

With one writer no two transactions of this process wait for each other, and what ended at about the same time is one
commit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cryptography.fernet import InvalidToken
from django.utils import timezone

from common.database_errors import is_database_unavailable
from common.work.dispatcher import Dispatcher
from webhooks import claims
from webhooks.attempts import ClaimedDelivery, Outcome, make_attempt
from webhooks.disabling import disable_deliveries
from webhooks.outcomes import record_outcomes
from webhooks.sharing import DueSubscription, InFlight

logger = logging.getLogger(__name__)

# A receiver that took longer for its last event has one attempt at a time, as one that did not take it: many that
# answer just in time would otherwise have all threads.
SLOW_SECONDS = 5.0
MOST_SLOW = 10_000  # subscriptions that are remembered as such


class WebhookDispatcher(Dispatcher[Outcome]):
    """`attempt` makes one attempt and never raises."""

    def __init__(self, threads: int, attempt: Callable[[ClaimedDelivery], Outcome] = make_attempt) -> None:
        # As many again for attempts that take long (`sharing`).
        super().__init__("webhooks", 2 * threads)
        self._attempt = attempt
        self._in_flight = InFlight(threads)
        self._unwritten: list[Outcome] = []
        # Encrypted under a key that is lost; until the process starts again.
        self._unreadable: set[str] = set()
        # By SLOW_SECONDS, as this process has seen it; in the order of the last time.
        self._slow: dict[str, None] = {}
        self._hanging: set[str] = set()  # with an attempt that takes long, at the last look

    @property
    def is_busy(self) -> bool:
        return bool(self._in_flight.total or self._unwritten)

    def run_pass(self) -> int:
        """Run a pass. Another one follows: a share may have been larger than what was due, and others get the rest."""
        self._write_ended()
        return 0 if self.is_stopping else self._begin_due()

    def seconds_to_look(self) -> float:
        """Return the seconds to the next look: fewer if an attempt will leave its thread to what waits."""
        soon = None if self._in_flight.free else self._in_flight.seconds_to_wait
        return self.LOOK_SECONDS if soon is None else min(self.LOOK_SECONDS, max(soon, self.GATHER_SECONDS))

    def _write_ended(self) -> None:
        self._unwritten += self.ended_work()
        if not self._unwritten:
            return
        try:
            later = record_outcomes(self._unwritten).later
        except Exception as exc:
            if is_database_unavailable(exc):
                raise
            logger.exception("outcomes of webhooks could not be written together; each is written by itself")
            later = self._write_one_by_one()
        # A locked outcome stays in flight: its account has no more of the threads for it.
        self._forget([each for each in self._unwritten if each not in later])
        self._unwritten = later

    def _write_one_by_one(self) -> list[Outcome]:
        """Write outcomes one by one: one that the database refuses must not keep the others from being written; its
        lease ends. Return those that are to be written later.
        """
        later: list[Outcome] = []
        while self._unwritten:
            try:
                later += record_outcomes(self._unwritten[:1]).later
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
            disable_deliveries(key)
        readable = [each for each in due if each.id not in self._unreadable]
        return self._begin([replace(each, is_proven=self._is_proven(each, each.id)) for each in readable])

    def _is_proven(self, found: DueSubscription | ClaimedDelivery, subscription_id: str) -> bool:
        return found.is_proven and subscription_id not in self._slow and subscription_id not in self._hanging

    def _begin(self, due: list[DueSubscription]) -> int:
        try:
            found = claims.claim_deliveries(due, self._in_flight)
        except InvalidToken:
            if len(due) > 1:
                return sum(self._begin([each]) for each in due)
            logger.error("%s cannot be read with the keys of this instance; nothing is sent to it", due[0].id)
            self._unreadable.add(due[0].id)
            return 0
        for claimed in found:
            # What it counts as now, also when it ends.
            is_proven = self._is_proven(claimed, claimed.subscription_id)
            each = replace(claimed, is_proven=is_proven, began=self._in_flight.now)
            self._in_flight.attempt_began(each.subscription_id, each.account_id, is_proven=each.is_proven)
            self.begin(partial(self._attempt, each))
        return len(found)
