"""Sums of columns of 64 bits that may be larger than such a column: SQLite's SUM() raises an error beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from django.db import models
from django.db.models import Sum
from django.db.models.functions import Cast

_HALF = 32  # bits


def exact_sum(column: str, prefix: str = "") -> dict[str, Sum]:
    """Aggregates of a column of whole numbers, or of credits in 1e-8, for `joined_sum`."""
    whole = Cast(column, models.BigIntegerField())
    return {
        f"{prefix}high": Sum(whole.bitrightshift(_HALF)),
        f"{prefix}low": Sum(whole.bitand((1 << _HALF) - 1)),
    }


def joined_sum(high: int | Decimal | None, low: int | Decimal | None) -> int:
    """The sum, of any size; 0 where there were no rows."""
    return (int(high or 0) << _HALF) + int(low or 0)


def exact_sums(columns: Sequence[str]) -> dict[str, Sum]:
    """Those of several columns, in their order, for `joined_sums`."""
    return {name: each for column in columns for name, each in exact_sum(column, f"{column}_").items()}


def joined_sums(parts: Sequence[int | Decimal | None]) -> list[int]:
    """The sums of the columns, from the values of `exact_sums` in order."""
    return [joined_sum(high, low) for high, low in zip(parts[::2], parts[1::2], strict=True)]
