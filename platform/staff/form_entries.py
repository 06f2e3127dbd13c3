"""Audit entries of what the admin's forms have written."""

from __future__ import annotations

from dataclasses import replace

from django.db.models import Model
from django.http import HttpRequest
from django.utils.text import capfirst

from staff import hooks
from staff.audit import StaffMember, Target, record_entry
from staff.subjects import Subject

ACCOUNT = "accounts.account"
NAMESPACE = "namespaces.namespace"
# Their services write in the owner's activity what staff change, but not why.
WRITTEN_BY_SERVICES = frozenset({NAMESPACE})


def record_form(request: HttpRequest, row: Model, action: str, detail: str, reason: str) -> None:
    """Record a form, as `staff.parts.bases.row_written`, in its transaction. The owner can read the entry, too."""
    member = StaffMember.of(request)
    record_entry(member, f"{row._meta.model_name}.{action}", Target.of(row), reason=reason, detail=detail)
    label, subject = row._meta.label_lower, Subject.of(row)
    if label == ACCOUNT:
        subject = replace(subject, account_id=str(row.pk))
    if label == NAMESPACE:
        subject = replace(subject, namespace_id=str(row.pk))
    if subject.account_id and (reason or label not in WRITTEN_BY_SERVICES):
        what = f"{capfirst(str(row._meta.verbose_name))} {row} {action} by staff"
        why = "; ".join(text for text in (detail, reason) if text)
        hooks.reason_given(subject, f"{what}: {why}" if why else f"{what}.", member.actor, member.origin)
