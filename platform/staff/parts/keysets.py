"""Pages of a table by key: a cursor has the values of the last row's columns, and the next page begins behind them."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import date
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Model, Q

from staff.parts.input import checked_value

# A cursor has a key or two. JSON that is nested deeply takes the whole stack.
CURSOR_LENGTH = 200


def reversed_order(name: str) -> str:
    return name[1:] if name.startswith("-") else f"-{name}"


def cursor_of(row: Model, keyset: Sequence[str]) -> str:
    values = [getattr(row, name.lstrip("-")) for name in keyset]
    text = json.dumps([value.isoformat() if isinstance(value, date) else value for value in values])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def cursor_values(model: type[Model], cursor: str, keyset: Sequence[str]) -> list[Any]:
    """Return the values of a cursor; empty for what is none, which shows the first page."""
    if len(cursor) > CURSOR_LENGTH:
        return []
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error):
        return []
    if not isinstance(values, list) or len(values) != len(keyset) or not all(isinstance(v, str | int) for v in values):
        return []
    try:
        return [checked_value(_column(model, name), value) for name, value in zip(keyset, values, strict=True)]
    except (ValidationError, TypeError):  # a number for a date
        return []


def _column(model: type[Model], name: str) -> Any:
    plain = name.lstrip("-")
    return model._meta.pk if plain == "pk" else model._meta.get_field(plain)


def rows_beyond(order: Sequence[str], values: Sequence[Any]) -> Q:
    """Return rows that come after these values. The first condition is one that an index can begin with."""
    found, equal = Q(), Q()
    for name, value in zip(order, values, strict=True):
        column = name.lstrip("-")
        found |= equal & Q(**{f"{column}__{'lt' if name.startswith('-') else 'gt'}": value})
        equal &= Q(**{column: value})
    first = order[0].lstrip("-")
    return Q(**{f"{first}__{'lte' if order[0].startswith('-') else 'gte'}": values[0]}) & found
