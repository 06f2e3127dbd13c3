"""The first rows of a search in several columns, each of which is looked up by an index of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Q, QuerySet


def first_keys(rows: QuerySet[Any], conditions: Sequence[Q], order: Sequence[str], count: int) -> list[Any]:
    """Keys of the first `count` rows that fulfil a condition, in one statement: the first of each, in `order`.

    For an OR of the conditions databases read all rows that fulfil one, or all rows.
    """
    key = rows.model._meta.pk.name
    named = ["-pk" if name == f"-{key}" else "pk" if name == key else name for name in order]
    columns = list(dict.fromkeys(["pk", *(name.lstrip("-") for name in named)]))
    plain = rows.model._default_manager.order_by().values_list(*columns)
    # A part of UNION can have no order and no limit on SQLite, but the query in its IN can.
    first, *others = (
        plain.filter(pk__in=rows.filter(condition).order_by(*order).values("pk")[:count]) for condition in conditions
    )
    found = first.union(*others).order_by(*named)[:count]
    return [values[0] for values in found]
