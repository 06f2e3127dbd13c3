"""Sums of columns of 64 bits that may be larger than such a column."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.db.models import BigIntegerField, Sum
from django.db.models.functions import Cast


class _AnySize(BigIntegerField):  # type: ignore[type-arg]  # Django has none at run time
    """The database adds columns of 64 bits exactly, as a number of any size, which the driver returns as a Decimal."""

    def from_db_value(self, value: Decimal, *_: Any) -> int:
        return int(value)


def exact_sum(column: str) -> Sum:
    """Return the aggregate of a column of whole numbers, or of credits as they are stored; 0 if there are no rows."""
    return Sum(Cast(column, BigIntegerField()), default=0, output_field=_AnySize())


def exact_sums(columns: Sequence[str]) -> dict[str, Sum]:
    """Return those of several columns, in their order."""
    return {f"{column}_sum": exact_sum(column) for column in columns}
