"""Suspension of namespaces by their quotas, written in the transaction of the charge or of the quota's change."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.utils import timezone

from accounts.audit import record_entries
from namespaces.audit import activity_entry
from namespaces.models import Namespace, NamespaceActivity, Status
from namespaces.status_events import Reason, StatusChange, status_events
from webhooks.events import NewEvent

COLUMNS = ("status", "suspended_by_quota", "quota_stops_workspaces", "updated_at")


@dataclass(frozen=True, slots=True)
class QuotaState:
    """State of a locked namespace's quotas: whether they suspend it. With `stops` the sweep stops its workspaces."""

    namespace: Namespace
    suspended: bool
    stops: bool

    @property
    def is_new(self) -> bool:
        return (self.namespace.suspended_by_quota, self.namespace.quota_stops_workspaces) != (
            self.suspended,
            self.stops,
        )


def lock_quotas(namespace_ids: Collection[str]) -> list[Namespace]:
    """Lock the rows for `set_quota_states` until the end of the transaction, and return them without deleted
    namespaces.

    Rows that reference them may still be written: a deletion that moves workspaces into one holds the lock of another
    namespace, for which the same charge may wait next.
    """
    if not namespace_ids:
        return []
    rows = Namespace.objects.select_for_update(of=("self",), no_key=True)
    return list(rows.filter(pk__in=namespace_ids).order_by("pk"))


def set_quota_states(states: Iterable[QuotaState]) -> list[NewEvent]:
    """Write the states that have changed, with activity, by a fixed number of statements. Idempotent.

    Return the events. The caller publishes them in the same transaction, together with its own.
    """
    changes = [(state.namespace.status, _applied(state)) for state in states if state.is_new]
    if not changes:
        return []
    Namespace.objects.bulk_update([row for _, row in changes], COLUMNS)
    record_entries([_entry(row, before) for before, row in changes])
    return status_events(StatusChange(row, before, Reason.QUOTA) for before, row in changes)


def _applied(state: QuotaState) -> Namespace:
    row = state.namespace
    row.suspended_by_quota, row.quota_stops_workspaces = state.suspended, state.stops
    if state.suspended or row.suspended_by_hand:
        row.status = Status.SUSPENDED
    elif row.status == Status.SUSPENDED:
        row.status = Status.ACTIVE
    row.updated_at = timezone.now()
    return row


def _entry(row: Namespace, before: str) -> NamespaceActivity:
    action = "suspended" if row.suspended_by_quota else "restored"
    changes = {"status": {"from": before, "to": row.status}}
    return activity_entry(row, action, "By a quota.", actor="quota", changes=changes)
