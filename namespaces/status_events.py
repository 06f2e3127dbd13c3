"""Events of a namespace that is suspended or no longer so (wire contract, section 7)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from django.utils import timezone

from common.errors import RateLimited
from namespaces.models import Namespace, Status
from webhooks.events import NewEvent, count_events, publish_events

SUSPENDED, RESTORED = "namespace.suspended", "namespace.restored"
# Twice as many as an account may have namespaces.
MOST_IN_A_MINUTE = 200
MINUTE = timedelta(minutes=1)


class Reason(StrEnum):
    """Cause of a suspension of a namespace, or of the end of the last one."""

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
        """Return the name of the event, or None if the change neither suspends nor restores the namespace, or if it is
        deleted.
        """
        was, suspended = self.before == Status.SUSPENDED, self.namespace.status == Status.SUSPENDED
        if was == suspended or self.namespace.deleted_at is not None:
            return None
        return SUSPENDED if suspended else RESTORED


def status_events(changes: Iterable[StatusChange]) -> list[NewEvent]:
    """Return the events to publish. A namespace suspended for two reasons is suspended once. It is restored once, when
    the last reason is gone.
    """
    return [_event(change, change.event) for change in changes if change.event]


def require_few_events(account_id: str) -> None:
    """Raise RateLimited if there were very many changes in the last minute. Called before a request announces one more.

    Nothing else limits how often a namespace is suspended and restored. Each time up to ten receivers are called, which
    the account chooses.
    """
    if count_events(account_id, (SUSPENDED, RESTORED), timezone.now() - MINUTE) >= MOST_IN_A_MINUTE:
        raise RateLimited(
            f"At most {MOST_IN_A_MINUTE} changes of status in a minute are sent to webhooks; try again later.",
            headers={"Retry-After": str(int(MINUTE.total_seconds()))},
        )


def publish_status_change(change: StatusChange) -> None:
    """Publish the event of one change, if it has one, in the caller's transaction."""
    publish_events(status_events([change]))


def _event(change: StatusChange, name: str) -> NewEvent:
    row = change.namespace
    return NewEvent(row.account_id, row.pk, row.slug, name, {"namespace": row.slug, "reason": change.reason.value})
