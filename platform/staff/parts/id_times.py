"""Rows of a time, found by their primary keys, in the order of which lists of the admin are read.

Keys are in the order in which rows are made. An id has its time in it (`common.ids`); for numbers it is looked up in an
index of times, which each of these tables has.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import DateTimeField, Model, Q

from common.ids import first_id
from staff.parts.input import ID

# By how much the order of keys and that of times may differ: a transaction takes its number before it ends.
MARGIN = timedelta(hours=1)
MICROSECONDS = 10**6  # in a second


def rows_since(model: type[Model], column: str, at: datetime) -> Q:
    """Return the condition of rows whose `column`, the time at which they were made, is `at` or later.

    The column has times, or microseconds since 1970. At most one query.
    """
    key = _first_id(model, at - MARGIN) or _key_of(model, f"-{column}", f"{column}__lt", at - MARGIN)
    return Q(**{f"{column}__gte": _stored(model, column, at)}) & (Q(pk__gte=key) if key else Q())


def rows_before(model: type[Model], column: str, at: datetime) -> Q:
    """Return the condition of rows of an earlier time. At most one query."""
    key = _first_id(model, at + MARGIN) or _key_of(model, column, f"{column}__gte", at + MARGIN)
    return Q(**{f"{column}__lt": _stored(model, column, at)}) & (Q(pk__lt=key) if key else Q())


def _stored(model: type[Model], column: str, at: datetime) -> datetime | int:
    has_times = isinstance(model._meta.get_field(column), DateTimeField)
    return at if has_times else round(at.timestamp() * MICROSECONDS)


def _key_of(model: type[Model], order: str, condition: str, at: datetime) -> Any:
    """Return the primary key of the first row in this order of times; None if there is none, or keys are in another
    one.
    """
    if "AutoField" not in model._meta.pk.get_internal_type():
        return None
    rows = model._default_manager.filter(**{condition: _stored(model, order.lstrip("-"), at)})
    return rows.order_by(order).values_list("pk", flat=True).first()


def _first_id(model: type[Model], at: datetime) -> str | None:
    """Return the first id of a time; None if the keys are no ids."""
    pk: Any = model._meta.pk
    if "AutoField" in pk.get_internal_type():
        return None
    known = pk.default() if pk.has_default() else _newest_key(model)
    return first_id(known.split("_")[0], at) if isinstance(known, str) and ID.fullmatch(known) else None


def _newest_key(model: type[Model]) -> Any:
    return model._default_manager.order_by("-pk").values_list("pk", flat=True).first()
