"""Rows of sends: every write of them is here, each a guarded update.

A request makes the row; the process with the claim hands out devices, writes what came of them and ends it; the sweep
ends what no process has ended. A device is handed out by moving `position` past it before anything is sent to it, so
none gets a notification twice, whatever dies when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta

from cryptography.fernet import InvalidToken
from django.db import transaction
from django.db.models import Count, Max, Q, QuerySet
from django.utils import timezone

from common.errors import RateLimited
from common.work.leases import ClaimLost, Lease, owned_rows, release_row
from common.work.wakeups import ProcessWakeup
from notifications.content import Content
from notifications.models import Device, Send, SendState, SendToken
from notifications.sends.results import DEADLINE, NOT_REGISTERED, REMOVED, Result, Tally, failure
from notifications.tokens import SendTokenHolder
from workspaces.operations.waiting import announce_outcome

# A device whose turn comes later than this gets nothing: what is said about a moment is no news after it.
LIFE = timedelta(seconds=60)
# After it the sweep ends what a process should have ended: attempts that began in time have long come back.
OVERDUE = timedelta(seconds=120)
LEASE = Lease(timedelta(seconds=10))
PUSH_WAKEUP = ProcessWakeup(queue="push", task="notifications.tasks.begin_sends")
_RUNNING = Q(state=SendState.RUNNING)
MOST_LIVE_OF_ACCOUNT = 200
MOST_RUNNING_OF_ACCOUNT = 16
MOST_LOOKED_AT = 10_000
KEPT = timedelta(days=1)
TOO_MANY = "Too many notifications of this account are still being sent; try again later."


def send_create(*, holder: SendTokenHolder, content: Content) -> Send:
    """Create a send to the devices that the account has now; a send without devices has ended. Raise RateLimited.

    One row is written, and `push` is notified.
    """
    account_id = holder.account.pk
    found = Device.objects.filter(account_id=account_id).aggregate(count=Count("pk"), last=Max("pk"))
    made = Send(
        account_id=account_id,
        workspace_id=holder.token.workspace_id,
        token_id=holder.token.pk,
        content=content.as_json(),
        devices=found["count"],
        last_device=found["last"] or 0,
    )
    if not made.devices:
        made.state = SendState.ENDED
        return made
    if live_sends_of(account_id).count() >= MOST_LIVE_OF_ACCOUNT:
        raise RateLimited(TOO_MANY, headers={"Retry-After": "5"})
    made.save(force_insert=True)
    PUSH_WAKEUP.send()
    return made


def live_sends() -> QuerySet[Send]:
    """Return the sends that have not ended."""
    return Send.objects.filter(state__in=[SendState.QUEUED, SendState.RUNNING]).order_by()


def live_sends_of(account_id: str) -> QuerySet[Send]:
    """Return those of an account."""
    return live_sends().filter(account_id=account_id)


def times_of_sends(token: SendToken, seconds: float) -> dict[str, float]:
    """Return the sends of a token in the last `seconds`, ended ones included, with their times (seconds since the
    epoch).
    """
    since = timezone.now() - timedelta(seconds=seconds)
    # All states: the index begins with them.
    found = Send.objects.filter(state__in=SendState.values, created_at__gt=since, token_id=token.pk).order_by()
    return {key: created_at.timestamp() for key, created_at in found.values_list("pk", "created_at")}


def claim_sends(claim: str, held: Mapping[str, str], most: int) -> list[Send]:
    """Claim what no process has, the oldest first, at most `most`. `held`: the sends that the caller has, with their
    accounts.

    An account has at most MOST_RUNNING_OF_ACCOUNT at a time, so that its many keep none of the others waiting.
    """
    due = live_sends().filter(LEASE.free()).order_by("created_at", "pk").values_list("pk", "account_id")
    counted, chosen = Counter(held.values()), list[str]()
    for key, account_id in due[:MOST_LOOKED_AT]:
        if key not in held and counted[account_id] < MOST_RUNNING_OF_ACCOUNT and len(chosen) < most:
            counted[account_id] += 1
            chosen.append(key)
    found = live_sends().filter(pk__in=chosen)
    if not chosen or not LEASE.claim_rows(found, claim, state=SendState.RUNNING):
        return []
    return list(Send.objects.filter(pk__in=chosen, claim=claim, state=SendState.RUNNING).defer("content"))


def read_content(send: Send) -> Content | None:
    """Return the content of a send; None if this instance's keys cannot read it, or the end of the send erased it."""
    try:
        stored = Send.objects.values_list("content", flat=True).get(pk=send.pk)
    except (InvalidToken, Send.DoesNotExist):
        return None
    return None if stored is None else Content.of_json(stored)


def devices_hand_out(send: Send, most: int) -> list[Device]:
    """Return the next devices, which are the caller's from now on; an empty list if there are no more. Raises
    ClaimLost.

    The address is None if it cannot be read with the keys of this instance.
    """
    rows = Device.objects.filter(account_id=send.account_id, pk__gt=send.position, pk__lte=send.last_device)
    found = _readable(rows.order_by("pk")[: min(most, send.devices - send.begun)])
    if not found:
        return []
    position, begun = found[-1].pk, send.begun + len(found)
    LEASE.write_row(send, _RUNNING & Q(position=send.position), position=position, begun=begun)
    return found


def _readable(rows: QuerySet[Device]) -> list[Device]:
    try:
        return list(rows)
    except InvalidToken:
        found = list(rows.defer("address"))
    for each in found:
        try:
            each.address  # noqa: B018 - loads it
        except InvalidToken:
            each.address = None
    return found


def write_progress(send: Send, tally: Tally) -> None:
    """Return what has come of the send so far; renews the lease. Raise ClaimLost."""
    values = {"delivered": tally.delivered, "failed": tally.failed, "errors": tally.errors()}
    LEASE.write_row(send, _RUNNING, **values)


def send_end(send: Send, tally: Tally, *, is_exhausted: bool) -> None:
    """End a claimed send. Raise ClaimLost.

    Attempts that were begun and have no outcome count as not answered. `is_exhausted`: no device is left, so that the
    rest of them have been removed since; otherwise their turn did not come in time.
    """
    unanswered = max(0, send.begun - tally.counted)
    tally.add(failure(DEADLINE), unanswered)
    rest = Result(NOT_REGISTERED, REMOVED) if is_exhausted else failure(DEADLINE)
    tally.add(rest, send.devices - tally.counted)
    if not _end(owned_rows(send).filter(_RUNNING), tally):
        raise ClaimLost(send.pk)
    transaction.on_commit(lambda: announce_outcome(send.pk))


def _end(rows: QuerySet[Send], tally: Tally) -> bool:
    return bool(
        rows.update(
            state=SendState.ENDED,
            content=None,
            claim="",
            lease_until=None,
            delivered=tally.delivered,
            failed=tally.failed,
            errors=tally.errors(),
            ended_at=timezone.now(),
        )
    )


def send_release(send: Send, tally: Tally, pending: list[Device]) -> None:
    """Give a claimed send back, with the devices that were handed out last and not begun. Nothing if it is lost."""
    values: dict[str, object] = {"delivered": tally.delivered, "failed": tally.failed, "errors": tally.errors()}
    if pending:
        values |= {"position": pending[0].pk - 1, "begun": send.begun - len(pending)}
    release_row(send, _RUNNING, state=SendState.QUEUED, **values)


def end_overdue_sends() -> int:
    """End what is long past its time: `push` is down, or was killed. Return how many."""
    now = timezone.now()
    found = live_sends().filter(Q(created_at__lt=now - OVERDUE) | Q(created_at__gt=now + OVERDUE)).defer("content")
    ended = 0
    for send in found[:MOST_LOOKED_AT]:
        tally = Tally.of(send.delivered, send.errors)
        tally.add(failure(DEADLINE), send.devices - tally.counted)
        unchanged = live_sends().filter(
            pk=send.pk, state=send.state, claim=send.claim, delivered=send.delivered, failed=send.failed
        )
        if _end(unchanged, tally):
            ended += 1
            announce_outcome(send.pk)
    return ended


def prune_ended_sends() -> int:
    """Remove what ended more than a day ago, a batch at a time. Return how many."""
    old = Send.objects.filter(state=SendState.ENDED, ended_at__lt=timezone.now() - KEPT).order_by("ended_at")
    keys = list(old.values_list("pk", flat=True)[:1000])
    return Send.objects.filter(pk__in=keys).delete()[0]


def tally_of(send: Send) -> Tally:
    """Return the counts of a send for an answer; a device without an outcome counts as not answered."""
    tally = Tally.of(send.delivered, send.errors)
    tally.add(failure(DEADLINE), send.devices - tally.counted)
    return tally
