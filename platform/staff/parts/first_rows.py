"""The first rows of a search in one or several columns, each of which is looked up by an index of its own."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isqrt
from typing import Any

from django.db.models import OuterRef, Q, QuerySet, Subquery

WINDOW = 500


class OneOf(Q):
    """The condition that a foreign key has one of these values: many of them, if an index has that key and then the
    order.
    """

    def __init__(self, key: str, values: Sequence[Any]) -> None:
        super().__init__(**{f"{key}__in": values})
        self.key, self.values = key, values


def keys_in_window(rows: QuerySet[Any], condition: Q, order: Sequence[str], count: int) -> list[Any]:
    """Return keys of those of the first WINDOW rows that fulfil the condition, in `order`: at most `count`.

    If there are so many, they are the first of all: what nearly all rows fulfil is found without reading these.
    """
    window = rows.order_by(*order).values("pk")[:WINDOW]
    found = rows.filter(condition, pk__in=window).order_by(*order)
    return list(found.values_list("pk", flat=True)[:count])


def first_keys(rows: QuerySet[Any], conditions: Sequence[Q], order: Sequence[str], count: int) -> list[Any]:
    """Return keys of the first `count` rows that fulfil a condition, in one statement: the first of each, in `order`.

    For an OR of the conditions databases read all rows that fulfil one, or all rows. If many fulfil a single one,
    keys are sorted, and not rows with all that the list joins to them.
    """
    key = rows.model._meta.pk.name
    named = ["-pk" if name == f"-{key}" else "pk" if name == key else name for name in order]
    columns = list(dict.fromkeys(["pk", *(name.lstrip("-") for name in named)]))
    first, *others = (rows.filter(condition).order_by(*order).values_list(*columns)[:count] for condition in conditions)
    found = first.union(*others).order_by(*named)[:count] if others else first
    return [values[0] for values in found]


def first_keys_of(rows: QuerySet[Any], owners: OneOf, order: Sequence[str], count: int) -> list[Any]:
    """Return what `first_keys` returns, of the rows of many owners. The columns of `order` are never null.

    If so many owners have `nth` rows each that these are enough, no row beyond them is among the first: with one row
    of each, with some of some, with all of one. So few rows are read, however they are spread over owners and times.
    A UNION takes longer to build and to parse than these statements.
    """
    name = order[0].lstrip("-")
    descends = order[0].startswith("-")
    for nth in (1, isqrt(count) + 1, count):
        needed = ceil(count / nth)
        found = sorted(_nth_of_each(rows, owners, order[0], nth), reverse=descends)
        if len(found) >= needed:
            rows = rows.filter(**{f"{name}__{'gte' if descends else 'lte'}": found[needed - 1]})
    return list(rows.filter(owners).order_by(*order).values_list("pk", flat=True)[:count])


def _nth_of_each(rows: QuerySet[Any], owners: OneOf, ordered: str, nth: int) -> list[Any]:
    """Return the column of the `nth` row of each owner that has so many; an index of owner and column is all that is
    read.
    """
    of_owner = rows.filter(**{owners.key: OuterRef("pk")}).order_by(ordered).values(ordered.lstrip("-"))
    related = rows.model._meta.get_field(owners.key).related_model._default_manager.filter(pk__in=owners.values)
    found = related.annotate(nth=Subquery(of_owner[nth - 1 : nth])).values_list("nth", flat=True)
    return [value for value in found if value is not None]
