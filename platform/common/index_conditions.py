"""Conditions of partial indexes in queries: SQLite uses such an index only where the query has the same literals."""

from __future__ import annotations

from django.db.models import BooleanField
from django.db.models.expressions import RawSQL


def literally(condition: str) -> RawSQL:
    """For `filter`: SQL as the index was declared with. Constants of the code only: nothing is quoted."""
    return RawSQL(condition, (), BooleanField())  # noqa: S611  # see above
