"""Writing what came of attempts: many at a time, in one transaction, each only while its claim is still its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, Model
from django.utils import timezone

from common.work.leases import is_claim_of
from webhooks.attempts import Outcome
from webhooks.disabling import subscription_switch_off
from webhooks.models import Attempt, Delivery, DeliveryStatus, DisabledReason, Subscription
from webhooks.schedule import retry_wait

FAILING_FOR = timedelta(days=5)


class Recorded(NamedTuple):
    """The number of written outcomes, and those that are to be written later: other transactions have locked their
    rows.
    """

    written: int
    later: list[Outcome]


def record_outcomes(outcomes: Sequence[Outcome]) -> Recorded:
    """Write attempts, deliveries and subscriptions, without waiting for other transactions.

    An outcome whose claim was lost writes nothing: another attempt is being made, or the row is at its end. Idempotent,
    as writing gives the claim back. Raise what the database raises; nothing is written then, and once the leases end
    the same deliveries are due again. A fixed number of statements, and one for each kind of 2xx answer.
    """
    with transaction.atomic():
        subscriptions = _locked_subscriptions(outcomes)
        deliveries = _locked_deliveries(outcomes)
        later = _locked_by_others(outcomes, subscriptions, deliveries)
        owned = [each for each in outcomes if each not in later and _is_owned(each, deliveries)]
        Attempt.objects.bulk_create(_attempt_row(each) for each in owned)
        _write_delivered([each for each in owned if each.is_delivered])
        reasons = _follow_receivers(owned, subscriptions)
        _write_undelivered([each for each in owned if not each.is_delivered], deliveries, subscriptions, reasons)
        for key, reason in reasons.items():
            subscription_switch_off(subscriptions[key], reason)
    return Recorded(len(owned), later)


def _locked_subscriptions(outcomes: Iterable[Outcome]) -> dict[str, Subscription]:
    """Lock the subscriptions before the deliveries, as a claim does; without encrypted columns."""
    keys = {each.delivery.subscription_id for each in outcomes}
    rows = Subscription.objects.select_for_update(of=("self",), no_key=True, skip_locked=True).filter(pk__in=keys)
    plain = rows.defer("url", "secret", "former_secret")
    return {row.pk: row for row in plain.order_by("pk")}


def _locked_deliveries(outcomes: Iterable[Outcome]) -> dict[str, Delivery]:
    keys = {each.delivery.id for each in outcomes}
    rows = Delivery.objects.select_for_update(of=("self",), no_key=True, skip_locked=True).filter(pk__in=keys)
    return {row.pk: row for row in rows.order_by("pk")}


def _locked_by_others(
    outcomes: Sequence[Outcome], subscriptions: Mapping[str, Subscription], deliveries: Mapping[str, Delivery]
) -> list[Outcome]:
    """Return the outcomes with a row that exists and was skipped; for a row that is gone nothing is left to write."""
    hooks = _skipped(Subscription, {each.delivery.subscription_id for each in outcomes}, subscriptions)
    rows = _skipped(Delivery, {each.delivery.id for each in outcomes}, deliveries)
    return [each for each in outcomes if each.delivery.subscription_id in hooks or each.delivery.id in rows]


def _skipped(model: type[Model], keys: set[str], found: Mapping[str, Model]) -> set[str]:
    """Return the rows that were skipped; without a query if none was."""
    missing = keys - found.keys()
    return set(model._default_manager.filter(pk__in=missing).values_list("pk", flat=True)) if missing else set()


def _is_owned(outcome: Outcome, deliveries: Mapping[str, Delivery]) -> bool:
    row = deliveries.get(outcome.delivery.id)
    return row is not None and row.status == DeliveryStatus.PENDING and is_claim_of(row, outcome.delivery)


def _attempt_row(outcome: Outcome) -> Attempt:
    return Attempt(
        subscription_id=outcome.delivery.subscription_id,
        delivery_id=outcome.delivery.id,
        number=outcome.delivery.number,
        started_at=outcome.started_at,
        duration_ms=outcome.duration_ms,
        status_code=outcome.status_code,
        error=outcome.error,
    )


def _write_delivered(delivered: Iterable[Outcome]) -> None:
    ids = defaultdict(list)
    for each in delivered:
        ids[each.status_code].append(each.delivery.id)
    for code, keys in ids.items():
        Delivery.objects.filter(pk__in=keys).update(
            status=DeliveryStatus.DELIVERED,
            attempts=F("attempts") + 1,
            next_attempt_at=None,
            claim="",
            lease_until=None,
            last_status_code=code,
            last_error="",
            delivered_at=timezone.now(),
        )


def _follow_receivers(
    outcomes: Iterable[Outcome], subscriptions: Mapping[str, Subscription]
) -> dict[str, DisabledReason]:
    """Note on the subscriptions how their receivers do. Return those that are to be switched off, and why."""
    reasons: dict[str, DisabledReason] = {}
    followed: dict[str, Subscription] = {}
    for each in outcomes:
        row = followed[each.delivery.subscription_id] = subscriptions[each.delivery.subscription_id]
        row.last_triggered_at, row.last_status_code = each.started_at, each.status_code
        row.failing_since = None if each.is_delivered else row.failing_since or each.started_at
        if reason := _reason_to_switch_off(each, row):
            reasons[row.pk] = reason
    fields = ["last_triggered_at", "last_status_code", "failing_since"]
    Subscription.objects.bulk_update(list(followed.values()), fields)
    return reasons


def _reason_to_switch_off(outcome: Outcome, row: Subscription) -> DisabledReason | None:
    if not row.active:
        return None
    if outcome.is_gone:
        return DisabledReason.GONE
    since = row.failing_since
    return DisabledReason.FAILING if since is not None and timezone.now() - since >= FAILING_FOR else None


_FIELDS = ["status", "attempts", "next_attempt_at", "claim", "lease_until", "last_status_code", "last_error"]


def _write_undelivered(
    outcomes: Iterable[Outcome],
    deliveries: Mapping[str, Delivery],
    subscriptions: Mapping[str, Subscription],
    reasons: Mapping[str, DisabledReason],
) -> None:
    """Write the next attempt; none if all were made or the subscription is off."""
    now, rows = timezone.now(), []
    for each in outcomes:
        row = deliveries[each.delivery.id]
        is_off = row.subscription_id in reasons or not subscriptions[row.subscription_id].active
        _set_undelivered(row, each, now, is_off=is_off)
        rows.append(row)
    Delivery.objects.bulk_update(rows, _FIELDS)


def _set_undelivered(row: Delivery, outcome: Outcome, now: datetime, *, is_off: bool) -> None:
    row.attempts += 1
    row.claim, row.lease_until = "", None
    row.last_status_code = outcome.status_code
    row.last_error = outcome.error or f"The receiver responded with status {outcome.status_code}."
    wait = None if is_off else retry_wait(row.attempts, retry_after=outcome.retry_after)
    row.next_attempt_at = None if wait is None else now + timedelta(seconds=wait)
    if is_off:
        row.status = DeliveryStatus.DISABLED
    elif wait is None:
        row.status = DeliveryStatus.FAILED
