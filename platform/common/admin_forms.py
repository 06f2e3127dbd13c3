"""Forms of rows in the admin that services write: each change has a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.http import HttpRequest

from common.errors import DomainError
from common.reasons import reason_field

REASON = "reason"
# The request's attribute with what a service has answered to its form.
REFUSAL = "form_refusal"


class ReasonedForm(forms.ModelForm):
    """The row's form with the reason, which is no column of it. `reason_to_add`: a new row needs one as well."""

    reason = reason_field("In the audit entry; of what an account has, its owner reads it. At most 300 characters.")
    reason_to_add = False
    # What a service has answered to this form: it is then shown again, with what was typed.
    refusal: DomainError | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields[REASON].required = self.reason_to_add or not self.instance._state.adding

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if self.refusal is not None:
            for name, texts in _texts_by_field(self.refusal).items():
                self.add_error(name if name in self.fields else None, texts)
        return cleaned

    @property
    def changed_data(self) -> list[str]:
        """Columns that were changed."""
        return [name for name in super().changed_data if name != REASON]


class ReasonMixin:
    """For admin classes: the form asks for the reason, last, and the message of what was written has it."""

    form = ReasonedForm

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        found: Any = super().get_form(request, obj, change, **kwargs)  # type: ignore[misc]
        found.refusal = getattr(request, REFUSAL, None)
        return found

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Sequence[Any]:
        found: Sequence[Any] = super().get_fields(request, obj)  # type: ignore[misc]
        return [name for name in found if name != REASON]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        found = super().get_fieldsets(request, obj)  # type: ignore[misc]
        writes = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)  # type: ignore[attr-defined]
        return [*found, (None, {"fields": (REASON,)})] if writes else [*found]

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> list[Any]:
        """Django's own shows nothing of an entry that it does not know."""
        message: list[Any] = super().construct_change_message(request, form, formsets, add)  # type: ignore[misc]
        return [*message, {REASON: form.cleaned_data[REASON]}]


def _texts_by_field(refusal: DomainError) -> dict[str, list[str]]:
    """Under "" what names no field. Details of another shape are for programs; people read the message."""
    details = refusal.details or {}
    if details and all(isinstance(texts, list) for texts in details.values()):
        return {name: [str(text) for text in texts] for name, texts in details.items()}
    return {"": [refusal.message]}


def reason_of(message: Any) -> str:
    """The reason, of a message that such a form has made; empty where there is none."""
    parts = message if isinstance(message, list) else []
    return next((str(part[REASON]) for part in parts if isinstance(part, dict) and REASON in part), "")
