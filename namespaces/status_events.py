"""The events of a namespace that is suspended or no longer so (wire contract, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from namespaces.models import Namespace, Status
from webhooks.events import NewEvent, events_publish


class Reason(StrEnum):
    """What suspended a namespace, or lifted the last suspension."""

    MANUAL = "manual"
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class StatusChange:
    """A row as it is written now, and its status before."""

    namespace: Namespace
    before: str
    reason: Reason

    @property
    def event(self) -> str | None:
        """None for a change that neither suspends the namespace nor restores it."""
        was, suspended = self.before == Status.SUSPENDED, self.namespace.status == Status.SUSPENDED
        if was == suspended:
            return None
        return "namespace.suspended" if suspended else "namespace.restored"


def status_changes_publish(changes: Sequence[StatusChange]) -> None:
    """Publish in the caller's transaction. One suspended for two reasons is suspended once, and restored once, when
    the last of them is lifted.
    """
    events_publish([_event(change, change.event) for change in changes if change.event])


def _event(change: StatusChange, name: str) -> NewEvent:
    row = change.namespace
    return NewEvent(row.account_id, row.pk, row.slug, name, {"namespace": row.slug, "reason": change.reason.value})
