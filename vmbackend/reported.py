"""Columns that a host writes with credentials of its own, and that others read: whatever it writes, a reader gets what
it expects, or less of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    FloatField = models.FloatField[Any, Any]
else:
    FloatField = models.FloatField

# Larger than any size or number of a host; JSON that is sent to clients has no larger ones.
_MOST = 1 << 53


class ReportedJSON(models.JSONField):
    """JSON, of which those parts are read that have the `shape`: `dict` or `list`, a list of which each item has the
    shape of the only one (a type, or an object whose values have these types), or the field's default.
    """

    def __init__(self, *args: Any, shape: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shape = shape

    def deconstruct(self) -> Any:
        """Return it as the plain field that it is for the database."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        """Return what is as expected of it."""
        found = super().from_db_value(value, expression, connection)
        if isinstance(self._shape, list):
            return [each for each in found if _has_shape(each, self._shape[0])] if isinstance(found, list) else []
        return found if self._shape is None or isinstance(found, self._shape) else self.get_default()


class ReportedFloat(FloatField):
    """A number; read as None if it is none, as JSON has no such numbers."""

    def deconstruct(self) -> Any:
        """Return it as the plain field that it is for the database."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.FloatField", args, kwargs

    def from_db_value(self, value: float | None, expression: Any, connection: Any) -> float | None:
        """Return the number, or None."""
        return value if value is not None and math.isfinite(value) else None


def _has_shape(item: Any, shape: Any) -> bool:
    if isinstance(shape, dict):
        return isinstance(item, dict) and all(_has_shape(item.get(name), kind) for name, kind in shape.items())
    if shape is int:
        return type(item) is int and 0 <= item < _MOST
    if shape is float:
        return type(item) in (int, float) and 0 <= item < _MOST
    return isinstance(item, shape)
