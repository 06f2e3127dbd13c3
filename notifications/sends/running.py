"""The sends that this process has claimed: what is begun next, and what has come of it. For one thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from django.db import IntegrityError, transaction
from django.utils import timezone

from common.database_errors import is_database_unavailable
from common.work.leases import ClaimLost
from common.work.shares import Shares
from notifications.devices import devices_prune
from notifications.models import Device, Send
from notifications.sends import queue
from notifications.sends.attempts import Outcome, PushProvider
from notifications.sends.fanout import CHUNK, Fanout
from notifications.sends.pauses import Pauses, is_paused, pause_write, read_pauses
from notifications.sends.results import INTERNAL, RATE_EXCEEDED, Tally, failure

logger = logging.getLogger(__name__)

MOST_RUNNING = 256
PAUSED = "The push provider asked this service to pause; try again later."
NOT_READABLE = "The notification cannot be read with the keys of this instance."

# Begins an attempt in a thread: a provider, a send, a device, and what the provider pauses as.
Begin = Callable[[PushProvider, Fanout, Device, str], None]


class RunningSends:
    """`threads`: attempts at once. `providers`: by the provider of a device. Every method raises what the database
    raises, and can be called again then.
    """

    def __init__(self, claim: str, threads: int, providers: Mapping[str, PushProvider]) -> None:
        self._claim, self._providers = claim, providers
        self._fanouts: dict[str, Fanout] = {}
        self._shares = Shares(threads)
        self._pauses: Pauses = {}

    @property
    def in_flight(self) -> int:
        """Return the number of attempts that have not been recorded."""
        return self._shares.total

    def claim(self) -> None:
        """Claim sends that no process has."""
        held = {key: each.send.account_id for key, each in self._fanouts.items()}
        found = queue.claim_sends(self._claim, held, MOST_RUNNING - len(held))
        if found:
            self._renew_pauses(found)
        for send in found:
            self._open(send)

    def _renew_pauses(self, found: Iterable[Send]) -> None:
        """Forget pauses that are over, and read those of the sends' accounts, which other processes may have
        written.
        """
        now = timezone.now()
        self._pauses = {key: until for key, until in self._pauses.items() if until > now}
        self._pauses |= read_pauses(each.account_id for each in found)

    def _open(self, send: Send) -> None:
        content = queue.read_content(send)
        if content is not None:
            self._fanouts[send.pk] = Fanout.of(send, content)
            return
        tally = Tally.of(send.delivered, send.errors)
        tally.add(failure(INTERNAL, NOT_READABLE), send.devices - tally.counted)
        queue.send_end(send, tally, is_exhausted=False)

    def begin(self, begin: Begin) -> None:
        """Begin as many attempts as there are threads, of each account its share."""
        self._hand_out()
        waiting: dict[str, list[Fanout]] = {}
        for fanout in self._fanouts.values():
            if fanout.pending and not fanout.is_over:
                waiting.setdefault(fanout.send.account_id, []).append(fanout)
        while (account := self._shares.next_account(waiting)) is not None:
            fanout = min(waiting[account], key=lambda each: each.in_flight)
            self._begin_next(fanout, begin)
            if not fanout.pending:
                waiting[account].remove(fanout)
            if not waiting[account]:
                del waiting[account]

    def _hand_out(self) -> None:
        for key, fanout in list(self._fanouts.items()):
            if not fanout.wants_devices:
                continue
            try:
                found = queue.devices_hand_out(fanout.send, CHUNK)
            except ClaimLost:
                del self._fanouts[key]
                continue
            fanout.pending.extend(found)
            fanout.is_exhausted = not found or fanout.send.begun >= fanout.send.devices

    def _begin_next(self, fanout: Fanout, begin: Begin) -> None:
        device = fanout.pending.popleft()
        account_id = fanout.send.account_id
        if device.address is None:
            fanout.record_unreadable()
            return
        provider = self._providers[device.provider]
        name = provider.pause_name(device.address)
        if is_paused(self._pauses, account_id, name, timezone.now()):
            fanout.record(failure(RATE_EXCEEDED, PAUSED))
            return
        fanout.in_flight += 1
        self._shares.begin(account_id)
        begin(provider, fanout, device, name)

    def record(self, outcomes: Iterable[Outcome]) -> None:
        """Count what has ended, and keep what outlasts the send: devices that are gone, pauses of providers.

        If the database cannot store this now, the next send finds it out again.
        """
        gone = []
        for outcome in outcomes:
            account_id = outcome.fanout.send.account_id
            outcome.fanout.in_flight -= 1
            self._shares.end(account_id)
            outcome.fanout.record(outcome.result)
            if outcome.result.is_gone:
                gone.append(outcome.device)
            if outcome.result.retry_after:
                self._pause(account_id, outcome.pause_name, outcome.result.retry_after)
        if gone:
            _unless_unavailable(lambda: devices_prune(gone))

    def _pause(self, account_id: str, name: str, seconds: float) -> None:
        def write() -> None:
            until = pause_write(account_id, name, seconds)
            if until is not None:
                self._pauses[account_id, name] = until

        _unless_unavailable(write)

    def write(self) -> None:
        """Write what has come of the sends, and end those that are done."""
        ended = [key for key, each in self._fanouts.items() if each.has_ended]
        due = [key for key, each in self._fanouts.items() if each.is_due and key not in ended]
        if not ended and not due:
            return
        with transaction.atomic():
            lost = [key for key in ended if not self._end(self._fanouts[key])]
            lost += [key for key in due if not self._write_progress(self._fanouts[key])]
        for key in {*ended, *lost}:
            del self._fanouts[key]
        for key in set(due) - set(lost):
            self._fanouts[key].mark_written()

    def _end(self, fanout: Fanout) -> bool:
        try:
            queue.send_end(fanout.send, fanout.tally, is_exhausted=fanout.is_exhausted)
        except ClaimLost:
            return False
        return True

    def _write_progress(self, fanout: Fanout) -> bool:
        try:
            queue.write_progress(fanout.send, fanout.tally)
        except ClaimLost:
            return False
        return True

    def give_back(self) -> None:
        """Give back what was not begun: when a process ends in order, its successor gets it at once."""
        with transaction.atomic():
            for fanout in self._fanouts.values():
                queue.send_release(fanout.send, fanout.tally, list(fanout.pending))
        self._fanouts.clear()


def _unless_unavailable(write: Callable[[], object]) -> None:
    try:
        write()
    except IntegrityError as exc:  # an account is being deleted
        logger.warning("notifications: %s", type(exc).__name__)
    except Exception as exc:
        if not is_database_unavailable(exc):
            raise
        logger.warning("notifications: %s", exc)
