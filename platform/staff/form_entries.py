"""Audit entries of what the admin's forms have written."""

from __future__ import annotations

from django.db.models import Model
from django.http import HttpRequest

from staff.audit import StaffMember, Target, record_entry


def record_form(request: HttpRequest, row: Model, action: str, detail: str) -> None:
    """`common.admin.row_written`, in the transaction of the form."""
    record_entry(StaffMember.of(request), f"{row._meta.model_name}.{action}", Target.of(row), detail=detail)
