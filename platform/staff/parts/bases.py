"""The bases of admin classes: rows are written by services only."""

from __future__ import annotations

from typing import Any

from django.db.models import JSONField, Model
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from common.errors import DomainError
from common.hooks import Hook
from staff.parts.forms import REFUSAL, ReasonMixin, reason_of
from staff.parts.input import CheckedJSONField
from staff.parts.lists import ListMixin
from staff.parts.pages import PageMixin

# (request, row, what, details, reason), in the transaction of the form: `what` is `added`, `changed` or `deleted`.
# Registered by staff, for its audit entries.
row_written: Hook[[HttpRequest, Model, str, str, str], None] = Hook("admin.row_written")


class AuditedFormsMixin:
    """A mixin that calls `row_written` for what the forms of an admin class have written. Before the base class."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        row_written(request, obj, "added", "", reason_of(message))
        return super().log_addition(request, obj, message)  # type: ignore[misc]

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        row_written(request, obj, "changed", _fields_of(message), reason_of(message))
        return super().log_change(request, obj, message)  # type: ignore[misc]

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        for obj in queryset:
            row_written(request, obj, "deleted", "", "")
        return super().log_deletions(request, queryset)  # type: ignore[misc]


class ServiceModelAdmin(ReasonMixin, AuditedFormsMixin, ListMixin, PageMixin, ModelAdmin):  # type: ignore[misc]  # unfold has no types
    """Saves by `save_by_service`, which calls services. Rows are deleted by an action (`staff.action_admin`).

    A service's refusal is shown in the form, beside what was typed, and nothing is written.
    """

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        if isinstance(db_field, JSONField):
            kwargs["form_class"] = CheckedJSONField
        return super().formfield_for_dbfield(db_field, request, **kwargs)

    def save_by_service(self, request: HttpRequest, obj: Any, *, change: bool) -> None:
        """Write a new or changed row. May set `obj.pk`."""
        raise NotImplementedError

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        self.save_by_service(request, obj, change=change)

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().changeform_view(request, *args, **kwargs)
        except DomainError as exc:
            if request.method != "POST":
                raise
            # The view's transaction is rolled back; its form is made again, and refuses what the service refused.
            setattr(request, REFUSAL, exc)
            return super().changeform_view(request, *args, **kwargs)


class ReadOnlyAdmin(ListMixin, PageMixin, ModelAdmin):  # type: ignore[misc]  # unfold has no types
    """An admin of rows that no form may change: audit entries, ledgers, what only services write."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def _fields_of(message: Any) -> str:
    """Return the names of the changed fields from Django's message of a change; never a value."""
    parts = [part.get("changed", {}) for part in message if isinstance(part, dict)] if isinstance(message, list) else []
    return ", ".join(str(name) for part in parts for name in part.get("fields", ()))


def staff_label(request: HttpRequest) -> str:
    """Return the actor of an audit entry for what staff do in the admin."""
    return f"staff {request.user}"


def replace_fields(obj: Model, stored: Model) -> None:
    """Make a form's unsaved object the stored row, as the admin goes on with the object it passed to `save_model`."""
    obj.__dict__.update({name: value for name, value in stored.__dict__.items() if not name.startswith("_")})
    obj._state.adding = False
