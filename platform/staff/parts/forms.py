"""Forms of rows in the admin that services write: each change has a reason, and replaces nothing unseen."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from django import forms
from django.conf import settings
from django.http import HttpRequest, QueryDict
from django.utils.crypto import salted_hmac

from common.errors import DomainError
from staff.parts.reasons import reason_field

REASON = "reason"
OPENED_WITH = "opened_with"
# No columns of the row.
_OWN_FIELDS = (REASON, OPENED_WITH)
# The request's attribute with what a service has answered to its form.
REFUSAL = "form_refusal"


class ReasonedForm(forms.ModelForm):  # type: ignore[type-arg]  # Django has none at run time
    """The row's form with the reason, which is no column of it. `reason_to_add`: a new row needs one as well.

    A form has all columns, also those that its sender left as they were. One that was opened before others changed any
    of them is refused once, by names; sent again it replaces what they wrote. If two are sent within the same
    milliseconds, the later one stays; both are in the audit entries.
    """

    reason = reason_field(
        "Part of the audit entry. If an account has the row, its owner can read the entry. At most 300 characters."
    )
    reason_to_add = False
    # Digests of the columns as they were when the form was made. A client that sends none is not refused.
    opened_with = forms.CharField(required=False, widget=forms.HiddenInput)
    # The refusal of a service for this form, which is then shown again with what was typed.
    refusal: DomainError | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields[REASON].required = self.reason_to_add or not self.instance._state.adding
        for field in self.fields.values():
            # For a column with a callable default, Django would compare with what the page sends as its former value.
            field.show_hidden_initial = False
        if not self.instance._state.adding:
            self.initial[OPENED_WITH] = json.dumps(self._digests(settings.SECRET_KEY))

    def _digests(self, secret: str) -> dict[str, str]:
        """Return keyed digests of the stored columns: with a secret key, a page gives no means to guess a value."""
        stored = {name: self.get_initial_for_field(field, name) for name, field in self.fields.items()}
        return {name: _digest(f"{name} {value!r}", secret) for name, value in stored.items() if name not in _OWN_FIELDS}

    def _refuse_unseen_changes(self, opened_with: Mapping[str, str]) -> None:
        present = [self._digests(secret) for secret in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
        changed = [
            name
            for name in self.changed_data
            if name in opened_with and self._differs(name) and opened_with[name] not in [each[name] for each in present]
        ]
        if not changed:
            return
        labels = ", ".join(str(self.fields[name].label or name) for name in changed)
        self.add_error(
            None,
            f"Others have changed this since the form was opened: {labels}. Nothing was saved. Save again to replace "
            "what they wrote, or load the page again to see it.",
        )
        data = cast(QueryDict, self.data).copy()
        data[self.add_prefix(OPENED_WITH)] = json.dumps(present[0])
        self.data = data

    def _differs(self, name: str) -> bool:
        """Return whether what was sent is something else than what is stored."""
        field = self.fields[name]
        return field.has_changed(self.get_initial_for_field(field, name), self[name].data)

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if not self.instance._state.adding and (opened_with := _digests_of(self.cleaned_data.get(OPENED_WITH))):
            self._refuse_unseen_changes(opened_with)
        if self.refusal is not None:
            for name, texts in _texts_by_field(self.refusal).items():
                self.add_error(name if name in self.fields else None, texts)
        return cleaned

    @property
    def changed_data(self) -> list[str]:
        """Return columns that were changed."""
        return [name for name in super().changed_data if name not in _OWN_FIELDS]


class ReasonMixin:
    """A mixin for admin classes: the form asks for the reason, last, and the message of what was written has it."""

    form = ReasonedForm

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        found: Any = super().get_form(request, obj, change, **kwargs)  # type: ignore[misc]
        found.refusal = getattr(request, REFUSAL, None)
        return found

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Sequence[Any]:
        found: Sequence[Any] = super().get_fields(request, obj)  # type: ignore[misc]
        return [name for name in found if name not in _OWN_FIELDS]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        found = super().get_fieldsets(request, obj)  # type: ignore[misc]
        writes = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)  # type: ignore[attr-defined]
        return [*found, (None, {"fields": _OWN_FIELDS})] if writes else [*found]

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> list[Any]:
        """Return the message of a change; Django's own shows nothing of an entry that it does not know."""
        message: list[Any] = super().construct_change_message(request, form, formsets, add)  # type: ignore[misc]
        return [*message, {REASON: form.cleaned_data[REASON]}]


def _digest(text: str, secret: str) -> str:
    return salted_hmac("staff.parts.forms", text, secret=secret, algorithm="sha256").hexdigest()[:16]


def _digests_of(text: str | None) -> dict[str, str]:
    """Return the digests by column; empty if the text is not what a form has."""
    with suppress(ValueError, RecursionError):
        found = json.loads(text or "{}")
        return found if isinstance(found, dict) else {}
    return {}


def _texts_by_field(refusal: DomainError) -> dict[str, list[str]]:
    """Return the texts by field, under "" those without a field. Details of another shape are for programs; people read
    the message.
    """
    details = refusal.details or {}
    if details and all(isinstance(texts, list) for texts in details.values()):
        return {name: [str(text) for text in texts] for name, texts in details.items()}
    return {"": [refusal.message]}


def reason_of(message: Any) -> str:
    """Return the reason, of a message that such a form has made; empty if there is none."""
    parts = message if isinstance(message, list) else []
    return next((str(part[REASON]) for part in parts if isinstance(part, dict) and REASON in part), "")
