"""The first rows of a search in one or several columns, each of which is looked up by an index of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Q, QuerySet

WINDOW = 500


def keys_in_window(rows: QuerySet[Any], condition: Q, order: Sequence[str], count: int) -> list[Any]:
    """Keys of those of the first WINDOW rows that fulfil the condition, in `order`: at most `count`.

    Where there are so many, they are the first of all: what nearly all rows fulfil is found without reading these.
    """
    window = rows.order_by(*order).values("pk")[:WINDOW]
    found = rows.filter(condition, pk__in=window).order_by(*order)
    return list(found.values_list("pk", flat=True)[:count])


def first_keys(rows: QuerySet[Any], conditions: Sequence[Q], order: Sequence[str], count: int) -> list[Any]:
    """Keys of the first `count` rows that fulfil a condition, in one statement: the first of each, in `order`.

    For an OR of the conditions databases read all rows that fulfil one, or all rows. Where many fulfil a single one,
    keys are sorted, and not rows with all that the list joins to them.
    """
    key = rows.model._meta.pk.name
    named = ["-pk" if name == f"-{key}" else "pk" if name == key else name for name in order]
    columns = list(dict.fromkeys(["pk", *(name.lstrip("-") for name in named)]))
    plain = rows.model._default_manager.order_by().values_list(*columns)
    # A part of UNION can have no order and no limit on SQLite, but the query in its IN can.
    first, *others = (
        plain.filter(pk__in=rows.filter(condition).order_by(*order).values("pk")[:count]) for condition in conditions
    )
    found = (first.union(*others) if others else first).order_by(*named)[:count]
    return [values[0] for values in found]
