"""Claiming deliveries that are due: by compare-and-set, with a lease.

A claim costs a fixed number of statements, each by an index, however many rows are due: the subscriptions that have any
are found by steps from one to the next in an index, and of each no more rows are read than it may have in flight. A
process that dies leaves a lease; once that is over the row is due again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import connection, transaction
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.utils import timezone

from common.work.leases import new_claim
from webhooks.attempts import ClaimedDelivery
from webhooks.models import DELIVERY_LEASE, Delivery, DeliveryStatus, Subscription
from webhooks.sharing import MOST_OF_SUBSCRIPTION, DueSubscription, InFlight, most_in_flight, threads_share

# Each step of the recursion is one look into an index (of the pending, by subscription and time), as is each `due_at`;
# DISTINCT would read an entry for every row that is due. The literals are those of the index's condition. A
# subscription of which all that is due is being attempted is left out (`Lease.free`): it would be given threads
# that others need.
_DUE_SUBSCRIPTIONS = """
WITH RECURSIVE waiting(id) AS (
    SELECT (SELECT subscription_id FROM webhooks_delivery WHERE status = 'pending' ORDER BY subscription_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT subscription_id FROM webhooks_delivery
        WHERE status = 'pending' AND subscription_id > waiting.id ORDER BY subscription_id LIMIT 1
    )
    FROM waiting WHERE waiting.id IS NOT NULL
),
first_due(id, due_at) AS (
    SELECT waiting.id, (
        SELECT next_attempt_at FROM webhooks_delivery
        WHERE status = 'pending' AND subscription_id = waiting.id
            AND (lease_until IS NULL OR lease_until <= STATEMENT_TIMESTAMP()
                OR lease_until > STATEMENT_TIMESTAMP() + %(longest_lease)s)
        ORDER BY next_attempt_at LIMIT 1
    )
    FROM waiting WHERE waiting.id IS NOT NULL
)
SELECT subscription.id, subscription.account_id, subscription.active,
    subscription.failing_since IS NULL AND subscription.last_triggered_at IS NOT NULL, first_due.due_at
FROM first_due JOIN webhooks_subscription AS subscription ON subscription.id = first_due.id
WHERE first_due.due_at <= %(now)s OR NOT subscription.active
"""


def is_anything_due(now: datetime) -> bool:
    """Return whether a delivery is due, or being attempted. One query."""
    return Delivery.objects.filter(status=DeliveryStatus.PENDING, attempts__gte=0, next_attempt_at__lte=now).exists()


def due_subscriptions(now: datetime) -> tuple[list[DueSubscription], list[str]]:
    """Return active subscriptions with a delivery that is due; ids of those that are off and have pending ones. One
    query.
    """
    active, off = [], []
    with connection.cursor() as cursor:
        times: dict[str, Any] = {"now": now, "longest_lease": DELIVERY_LEASE.longest}
        cursor.execute(_DUE_SUBSCRIPTIONS, times)
        for key, account, is_active, is_proven, due_at in cursor.fetchall():
            if is_active:
                active.append(DueSubscription(key, account, is_proven, due_at))
            else:
                off.append(key)
    return active, off


def claim_deliveries(due: list[DueSubscription], in_flight: InFlight) -> list[ClaimedDelivery]:
    """Claim what the free threads are shared out to. If the process dies after it, the leases end.

    Two processes never claim one row, and together no more of a subscription than it may have in flight.
    """
    shares = threads_share(due, in_flight)
    if not shares:
        return []
    token = new_claim()
    with transaction.atomic():
        rows = _locked_subscriptions(shares)
        now = timezone.now()
        chosen = _chosen_rows(rows, shares, now)
        free = Delivery.objects.select_for_update(of=("self",), no_key=True, skip_locked=True)
        free = free.filter(DELIVERY_LEASE.free(), pk__in=chosen, status=DeliveryStatus.PENDING)
        DELIVERY_LEASE.claim_rows(Delivery.objects.filter(pk__in=free.order_by().values("pk")), token)
    return _claimed_deliveries(rows, chosen, token, now)


def _locked_subscriptions(shares: Mapping[str, int]) -> dict[str, Subscription]:
    """Return the subscriptions, locked against a claim by another process; publishing goes on. Rows that another
    transaction has locked are left to the next look.
    """
    rows = Subscription.objects.select_for_update(of=("self",), no_key=True, skip_locked=True)
    rows = rows.filter(pk__in=shares, active=True)
    return {row.pk: row for row in rows.order_by("pk")}


def _chosen_rows(rows: Mapping[str, Subscription], shares: Mapping[str, int], now: datetime) -> list[str]:
    """Return the ids of the deliveries to claim: the oldest, within what other processes leave of a subscription's
    share.
    """
    others = _leased_counts()
    first = Subscription.objects.filter(pk__in=rows).annotate(**_first_due(now))
    chosen: list[str] = []
    for key, *found in first.order_by().values_list("pk", *_FIRST):
        most = most_in_flight(is_proven=_is_proven(rows[key]))
        share = min(shares[key], most - others[key])
        chosen += [delivery for delivery in found if delivery][: max(0, share)]
    return chosen


def _is_proven(row: Subscription) -> bool:
    """Return whether the subscription is proven, as in the query above."""
    return row.failing_since is None and row.last_triggered_at is not None


_FIRST = [f"first_{place}" for place in range(MOST_OF_SUBSCRIPTION)]


def _first_due(now: datetime) -> dict[str, Any]:
    """Return the oldest deliveries of a subscription that can be claimed, as columns of its row.

    Without a second key of order, for which all rows of one time would be sorted.
    """
    due = Delivery.objects.filter(
        DELIVERY_LEASE.free(), subscription=OuterRef("pk"), status=DeliveryStatus.PENDING, next_attempt_at__lte=now
    )
    ids: QuerySet[Delivery, Any] = due.order_by("next_attempt_at").values("pk")
    return {name: Subquery(ids[place : place + 1]) for place, name in enumerate(_FIRST)}


def _leased_counts() -> Counter[str]:
    """Return the attempts in flight by subscription, of all processes."""
    found = Delivery.objects.filter(DELIVERY_LEASE.held()).order_by().values_list("subscription_id")
    return Counter(dict(found.annotate(Count("pk"))))


def _claimed_deliveries(
    rows: Mapping[str, Subscription], chosen: list[str], token: str, now: datetime
) -> list[ClaimedDelivery]:
    found = Delivery.objects.filter(pk__in=chosen, claim=token).order_by("next_attempt_at", "pk")
    fields = ("pk", "subscription_id", "attempts", "event_id", "event__type", "event__created_at")
    return [
        _claimed(rows[values[1]], token, now, *values)
        for values in found.values_list(*fields, "event__namespace_slug", "event__data")
    ]


def _claimed(row: Subscription, token: str, now: datetime, *values: Any) -> ClaimedDelivery:
    key, _, attempts, event_id, event_type, event_at, namespace, data = values
    in_grace = row.former_secret and row.former_secret_until and row.former_secret_until > now
    return ClaimedDelivery(
        id=key,
        claim=token,
        number=attempts + 1,
        subscription_id=row.pk,
        account_id=row.account_id,
        is_proven=_is_proven(row),
        url=row.url,
        secrets=(row.secret, row.former_secret) if in_grace else (row.secret,),
        event_id=event_id,
        event_type=event_type,
        event_at=event_at,
        namespace=namespace,
        data=data,
    )
