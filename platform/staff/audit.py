"""The only writer of audit entries of staff. Entries are written in the caller's transaction."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from django.db.models import Model
from django.http import HttpRequest

from common.request_origin import NO_ORIGIN, RequestOrigin, request_origin
from staff.models import Outcome, StaffEntry

logger = logging.getLogger("staff.audit")


@dataclass(frozen=True, slots=True)
class StaffMember:
    """The person who acts, and the address. `user_id` is None for a command on the host."""

    user_id: int | None
    name: str
    origin: RequestOrigin = NO_ORIGIN

    @classmethod
    def of(cls, request: HttpRequest) -> StaffMember:
        """Return the user of a request to the admin."""
        return cls(request.user.pk, request.user.get_username(), request_origin(request))

    @property
    def actor(self) -> str:
        """Return the name of staff in activity and audit logs of users."""
        return f"staff {self.name}"


@dataclass(frozen=True, slots=True)
class Target:
    """The object of an entry, read before the action, which may delete it."""

    object_type: str = ""
    object_id: str = ""
    object_label: str = ""
    account_id: str = ""

    @classmethod
    def of(cls, row: Model) -> Target:
        """Return a row of any model, with its account if it has one."""
        account = str(getattr(row, "account_id", "") or "")
        return cls(row._meta.label_lower, str(row.pk)[:255], str(row)[:200], account[:24])


def record_entry(
    member: StaffMember,
    action: str,
    target: Target,
    *,
    outcome: Outcome = Outcome.DONE,
    reason: str = "",
    detail: str = "",
    submission: str = "",
) -> StaffEntry:
    """Write the entry, and a log line. Raise IntegrityError if the submission has an entry for this object."""
    values: dict[str, Any] = {
        "user_id": member.user_id,
        "user_name": member.name[:150],
        "ip_address": member.origin.ip_address,
        "user_agent": member.origin.user_agent,
        "object_type": target.object_type,
        "object_id": target.object_id,
        "object_label": target.object_label,
        "account_id": target.account_id,
    }
    made = StaffEntry.objects.create(
        action=action[:60], outcome=outcome, reason=reason, detail=detail[:500], submission=submission, **values
    )
    logger.info("%s %s %s by %s: %s", action, target.object_id, outcome, member.actor, detail or reason)
    return made


def is_repeated(submission: str, object_ids: list[str]) -> set[str]:
    """Return those of the objects for which the submission has an entry. One query."""
    rows = StaffEntry.objects.filter(submission=submission, object_id__in=object_ids)
    return set(rows.values_list("object_id", flat=True))
