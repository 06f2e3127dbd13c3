"""Publishing events: the names that exist, and the outbox.

An event and its deliveries are written in the transaction of the fact that they announce, so neither is ever without
the other. The process `hooks` decides what is sent later, and when.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from common.bulk_rows import rows_insert
from webhooks.models import Delivery, DeliveryStatus, Event, Subscription, new_delivery_id, new_event_id
from webhooks.wakeups import HOOKS_WAKEUP

# The events that may be subscribed to, and when each is sent.
CATALOGUE = {
    "namespace.quota.threshold": "The usage of a service by a namespace passed a threshold of its quota.",
    "namespace.suspended": "A namespace was suspended, by hand or by a quota (`data.reason`).",
    "namespace.restored": "A namespace is no longer suspended by hand, or by a quota (`data.reason`).",
    "credits.depleted": "The quota of a namespace and its overdraft are used up, or have no room for a request.",
    "credits.usage": "The usage of a workspace in a billing cycle.",
    "vm.stopped": "A workspace was stopped.",
    "vm.exited": "The machine of a workspace ended by itself.",
    "vm.lost": "The machine of a workspace has vanished from its host.",
    "snapshot.created": "A snapshot of a workspace is complete.",
    "snapshot.failed": "A snapshot could not be made, or its files are gone.",
    "snapshot.deleted": "A snapshot was deleted, by request, with its workspace, or at the end of its time to live.",
    "workspace.forked": "The forks of a workspace are made (`data.forks`), or could not be (`data.failed`).",
    "workspace.restored": "A workspace was put back to a snapshot.",
    "generation.complete": "A code generation has finished.",
    "optimization.complete": "A code optimization has finished.",
}
EVERY_EVENT = "*"
# Sent by `POST /webhooks/:id/test` to that webhook alone.
TEST_EVENT = "webhook.test"
_ROWS = 500  # of one statement
_ACCOUNTS = 10_000  # of one query


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A fact to announce. `data`: JSON values. `key` names the fact in its account, if it may be found twice."""

    account_id: str
    namespace_id: str
    namespace_slug: str
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The events that an active subscription wants."""

    id: str
    namespace_id: str
    events: frozenset[str]

    def wants(self, event: NewEvent) -> bool:
        here = not self.namespace_id or self.namespace_id == event.namespace_id
        return here and (event.type in self.events or EVERY_EVENT in self.events)


def publish_events(events: Sequence[NewEvent]) -> int:
    """Write the events that a subscription wants, and their deliveries, in the caller's transaction. Return how many.

    A fixed number of statements beside bulk inserts: one query, two if an event has a key. If transactions publish one
    key at once, all but the first wait, and publish nothing. Raise RuntimeError outside of a transaction, ValueError
    for an unknown name.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("Events are published in the transaction of their fact.")
    if unknown := {event.type for event in events} - CATALOGUE.keys():
        raise ValueError(f"There is no event {sorted(unknown)[0]!r}.")
    wanted = _wanted_by_account({event.account_id for event in events})
    pairs = [(event, found) for event in events if (found := _receivers(event, wanted))]
    if not pairs:
        return 0
    return _write_events(pairs)


def count_events(account_id: str, types: Iterable[str], since: datetime) -> int:
    """Return how many events of these names were written for an account since that time, some minutes ago."""
    return Event.objects.filter(account_id=account_id, type__in=list(types), created_at__gte=since).count()


def event_send_to(subscription: Subscription, type: str, data: Mapping[str, Any]) -> Delivery:
    """Write an event for one subscription alone, whichever events it wants, in the caller's transaction."""
    event = Event.objects.create(
        account_id=subscription.account_id,
        type=type,
        namespace_id=subscription.namespace_id,
        namespace_slug=subscription.namespace_slug,
        data=dict(data),
    )
    delivery = Delivery.objects.create(subscription=subscription, event=event)
    HOOKS_WAKEUP.send_on_commit()
    return delivery


def _wanted_by_account(accounts: Iterable[str]) -> dict[str, list[_Wanted]]:
    found: dict[str, list[_Wanted]] = defaultdict(list)
    for some in _chunks(sorted(accounts), _ACCOUNTS):
        rows = Subscription.objects.filter(account_id__in=some, active=True, direct_key__isnull=True).order_by("pk")
        for account, key, namespace, events in rows.values_list("account_id", "pk", "namespace_id", "events"):
            found[account].append(_Wanted(key, namespace, frozenset(events)))
    return found


def _chunks(values: list[str], size: int) -> Iterator[list[str]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _receivers(event: NewEvent, wanted: Mapping[str, list[_Wanted]]) -> list[str]:
    """Return the ids of the subscriptions that get it."""
    return [each.id for each in wanted.get(event.account_id, ()) if each.wants(event)]


def _write_events(pairs: Sequence[tuple[NewEvent, list[str]]]) -> int:
    rows = _event_rows([event for event, _ in pairs])
    written = _insert_events(rows)
    _insert_deliveries(
        [
            (key, row.pk, _stored_time(row.created_at))
            for row, (_, receivers) in zip(rows, pairs, strict=True)
            if row.pk in written
            for key in receivers
        ]
    )
    if written:
        HOOKS_WAKEUP.send_on_commit()
    return len(written)


def _insert_deliveries(wanted: Sequence[tuple[str, str, str]]) -> None:
    """Insert deliveries of (subscription, event, time of the event); as columns, because a billing cycle has 100,000 of
    them.
    """
    rows = [
        (key, subscription, event, at, at)
        for key, (subscription, event, at) in zip(sorted(new_delivery_id() for _ in wanted), wanted, strict=True)
    ]
    same = {"status": DeliveryStatus.PENDING, "attempts": 0, "claim": "", "last_error": ""}
    rows_insert(Delivery, ("id", "subscription_id", "event_id", "next_attempt_at", "created_at"), rows, same)


def _stored_time(moment: datetime) -> str:
    return str(Delivery._meta.get_field("created_at").get_db_prep_save(moment, connection))


def _event_rows(events: Sequence[NewEvent]) -> list[Event]:
    """Return the rows; ids and times are in the order of the events, and so are their first attempts."""
    now, ids = timezone.now(), sorted(new_event_id() for _ in events)
    return [
        Event(
            id=key,
            account_id=event.account_id,
            type=event.type,
            namespace_id=event.namespace_id,
            namespace_slug=event.namespace_slug,
            data=dict(event.data),
            key=event.key,
            created_at=now + timedelta(microseconds=number),
        )
        for number, (key, event) in enumerate(zip(ids, events, strict=True))
    ]


def _insert_events(rows: Sequence[Event]) -> set[str]:
    """Insert the rows without a key, and those whose key is new. Return the ids of what was written."""
    # In order, so that two transactions never wait for each other in a circle.
    keyed = sorted((row for row in rows if row.key is not None), key=lambda row: (row.account_id, row.key or ""))
    unkeyed = [row for row in rows if row.key is None]
    Event.objects.bulk_create(unkeyed, batch_size=_ROWS)
    Event.objects.bulk_create(keyed, batch_size=_ROWS, ignore_conflicts=True)
    written = {row.pk for row in unkeyed}
    for some in _chunks([row.pk for row in keyed], _ROWS):
        written.update(Event.objects.filter(pk__in=some).values_list("pk", flat=True))
    return written
