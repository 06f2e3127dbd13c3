"""Checks of what a browser sends to the admin, before a query takes it.

Databases refuse some values by an error of their own, which no page shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.core.paginator import InvalidPage
from django.db.models import Model
from django.forms.fields import InvalidJSONInput
from django.http import Http404, HttpRequest, HttpResponse

# As `common.ids.new_id` makes them.
ID = re.compile(r"[a-z]{2,5}_[a-z0-9]{16}")
# The characters of `django.contrib.admin.utils.unquote`: `_22` and the like, which begin some ids, stand for these.
_UNQUOTED = re.compile(r'["#$%&@]')


# In a text of JSON: one that is no escaped backslash and "u0000".
_NULL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class CheckedJSONField(forms.JSONField):
    """A field that refuses what PostgreSQL's JSON does not have: null characters, halves of surrogate pairs, NaN,
    infinity; and what is nested too deeply to be read.
    """

    def to_python(self, value: Any) -> Any:
        try:
            found = super().to_python(value)
            text = json.dumps(found, allow_nan=False, ensure_ascii=False)
        except (RecursionError, ValueError) as exc:
            raise self._refusal(value) from exc
        if _NULL.search(text) or not _is_unicode(text):
            raise self._refusal(value)
        return found

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Return the value as it was sent, also if it is refused."""
        try:
            self.to_python(data)
        except forms.ValidationError:
            return InvalidJSONInput(data or "")
        return super().bound_data(data, initial)

    def _refusal(self, value: Any) -> forms.ValidationError:
        return forms.ValidationError(self.error_messages["invalid"], code="invalid", params={"value": value})


def checked_value(field: Any, value: Any) -> Any:
    """Return the value as the column has it. Raise ValidationError for one that it cannot have."""
    while field.remote_field is not None:
        field = field.target_field
    if isinstance(value, str) and ("\0" in value or not _is_unicode(value)):
        raise ValidationError("The database cannot store this text.")
    found = field.to_python(value)
    field.run_validators(found)
    return found


def _is_unicode(text: str) -> bool:
    """Return whether the text is Unicode; half of a pair of surrogates is not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def possible_keys(model: type[Model], keys: Iterable[str]) -> list[Any]:
    """Return the primary keys that a row could have."""
    found = []
    for key in keys:
        with suppress(ValidationError):
            found.append(checked_value(model._meta.pk, key))
    return found


def given_id(key: str) -> str:
    """Return the id that was in an address: the admin has unquoted it, and with it what begins some of our ids."""
    quoted = _UNQUOTED.sub(lambda found: f"_{ord(found[0]):02X}", key)
    return quoted if ID.fullmatch(quoted) else key


def search_page(request: HttpRequest) -> HttpResponse:
    """Return the search of the navigation, by unfold. Raise Http404 for a page that it does not have."""
    try:
        found: HttpResponse = admin.site.search(request)  # type: ignore[attr-defined]  # unfold's site
    except (InvalidPage, ValueError) as exc:
        raise Http404("There is no such page.") from exc
    return found
