"""Costs of a call, from the moment it counts to its end: the only writer of `Call`.

`call_begin` counts a call and holds its highest price, in one transaction with the row. Exactly one of `call_finish`,
`call_keep_partial` and `call_give_back` then ends it: each begins by deleting the row, so that a second one changes
nothing. A process that died leaves the row, and `expire_calls` gives it back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import ROUND_UP, Decimal
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from assist.day_count import call_count, call_uncount
from assist.models import ApiKey, Call
from assist.rate_headers import DayState
from assist.spent import Spent
from credits.amounts import PLACES
from credits.enforcement import require_credits
from credits.entries import Purpose
from credits.holds import credits_hold, hold_settle, hold_void
from credits.models import Rate, Service, Unit
from credits.refusals import refusals_announced
from credits.services import Rates
from namespaces.models import Namespace
from webhooks.direct import DirectReceiver, send_direct_event
from webhooks.events import NewEvent, publish_events

logger = logging.getLogger(__name__)

# Time beyond the longest wait and the longest call: after it the process is gone, or has lost the call.
SLACK = timedelta(seconds=30)
# No call writes an expiry later than this. A later one was written before the clock was set back.
LONGEST = timedelta(hours=2)
EXPIRE_BATCH = 200
PER_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class BegunCall:
    """A call that counts. `price`: of one call and of 1,000 tokens, by the rates of its beginning. `held`: the highest
    cost.
    """

    call: Call
    namespace: Namespace
    day: DayState
    price: tuple[Decimal, Decimal]
    held: Decimal

    def cost(self, tokens: int) -> Decimal:
        """Return the price of `tokens`, but never more than what was held, whatever a server reports."""
        return min(_cost(self.price, tokens), self.held)


@dataclass(frozen=True, slots=True)
class Finished:
    """Event that announces a call with its answer. `receiver` is set if the request named a receiver of its own."""

    event: str
    data: dict[str, Any]
    receiver: DirectReceiver | None = None


@refusals_announced()
@transaction.atomic
def call_begin(*, key: ApiKey, namespace: Namespace, tokens: int) -> BegunCall:
    """Count a call and hold the price of `tokens`. Raise DayQuotaExceeded or QuotaExceeded; nothing is counted then."""
    env = settings.ENV
    require_credits(namespace, Service.AI)
    now = timezone.now()
    price = _prices(now)
    held = _cost(price, tokens)
    day = call_count(key.account)
    expires_at = now + timedelta(seconds=env.assist_queue_seconds + env.assist_seconds) + SLACK
    call = Call.objects.create(account=key.account, namespace_id=namespace.pk, day=day.day, expires_at=expires_at)
    # Longer than the row, whose end gives the hold back, too.
    credits_hold(namespace=namespace, service=Service.AI, amount=held, key=call.pk, until=expires_at + LONGEST)
    return BegunCall(call, namespace, day, price, held)


@transaction.atomic
def call_finish(*, begun: BegunCall, spent: Spent, finished: Finished) -> bool:
    """Charge what the call really cost, and announce it. Return False if the call was given back before: it is free
    then.
    """
    if not _end(begun.call):
        logger.error("the call %s took longer than allowed; it was given back", begun.call.pk)
        return False
    _settle(begun, spent)
    _announce(begun, finished)
    return True


@transaction.atomic
def call_keep_partial(*, begun: BegunCall, spent: Spent) -> bool:
    """Charge a call whose client left after the model was asked: it counts, and costs its prompt and the part that
    came.

    Return False if the call was given back before.
    """
    if not _end(begun.call):
        return False
    _settle(begun, spent, "client left")
    return True


@transaction.atomic
def call_give_back(call: Call, namespace: Namespace | None = None) -> bool:
    """Take back a call without an answer, from the day's count and from the held credits. Return False if the call had
    ended. Idempotent.
    """
    if not _end(call):
        return False
    call_uncount(call.account_id, call.day)
    held = namespace or Namespace(pk=call.namespace_id, account_id=call.account_id)
    hold_void(namespace=held, service=Service.AI, key=call.pk)
    return True


def expire_calls() -> int:
    """Give back the calls of processes that died, a batch at a time. Return how many."""
    now = timezone.now()
    lost = Call.objects.filter(Q(expires_at__lte=now) | Q(expires_at__gt=now + LONGEST)).order_by("expires_at")
    return sum(call_give_back(call) for call in list(lost[:EXPIRE_BATCH]))


def _end(call: Call) -> bool:
    """Delete the row of a call. Return whether this process ended the call: of several that try, only one does."""
    return Call.objects.filter(pk=call.pk).delete()[0] == 1


def _prices(at: datetime) -> tuple[Decimal, Decimal]:
    rates = Rates(Rate.objects.filter(unit__in=(Unit.ASSIST_CALL, Unit.ASSIST_TOKENS)))
    return rates.credits(Unit.ASSIST_CALL, at), rates.credits(Unit.ASSIST_TOKENS, at)


def _cost(price: tuple[Decimal, Decimal], tokens: int) -> Decimal:
    return (price[0] + price[1] * tokens / PER_TOKENS).quantize(PLACES, rounding=ROUND_UP)


def _settle(begun: BegunCall, spent: Spent, *notes: str) -> None:
    counted: Sequence[str] = ["counted by length"] if spent.is_counted_by_length else []
    text = ", ".join([f"{spent.tokens} tokens", *counted, *notes])
    hold_settle(
        namespace=begun.namespace,
        service=Service.AI,
        key=begun.call.pk,
        amount=begun.cost(spent.tokens),
        purpose=Purpose(description=f"Code assistance: {text}."),
    )


def _announce(begun: BegunCall, finished: Finished) -> None:
    namespace = begun.namespace
    event = NewEvent(namespace.account_id, namespace.pk, namespace.slug, finished.event, finished.data)
    publish_events([event])
    if finished.receiver is not None:
        send_direct_event(finished.receiver, event)
