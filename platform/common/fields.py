"""Serializer fields without type coercion: `"1"` is no number, `1` is no string, `"true"` is no boolean."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.durations import parse_duration

# As a base, and if it is not said which field: none of its four arguments is.
AnyField = serializers.Field[Any, Any, Any, Any]


class StrictChar(serializers.CharField):
    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class StrictRegex(StrictChar, serializers.RegexField):
    """Text of one form."""


class StrictBoolean(serializers.BooleanField):
    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class StrictInteger(serializers.IntegerField):
    """Whole numbers; 512.0 is one, 512.5 and "512" are none."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int | float) or data != int(data):
            self.fail("invalid")
        return super().to_internal_value(int(data))


class StrictFloat(serializers.FloatField):
    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        try:
            return super().to_internal_value(data)
        except OverflowError:  # a whole number of hundreds of digits
            self.fail("invalid")


class StrictDecimal(serializers.DecimalField):
    """A JSON number as a Decimal, for amounts that must stay exact."""

    def __init__(self, **kwargs: Any) -> None:
        # A number in the OpenAPI document, too.
        super().__init__(coerce_to_string=False, **kwargs)

    def to_internal_value(self, data: Any) -> Decimal:
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail("invalid")
        return super().to_internal_value(repr(data))


class BoundedList(serializers.ListField):
    """A list whose length is checked before its items, each of which may take a while: DRF's own checks the items
    first.
    """

    def to_internal_value(self, data: Any) -> list[Any]:
        most = self.max_length
        if most is not None and isinstance(data, list) and len(data) > most:
            self.fail("max_length", max_length=most)
        return list(super().to_internal_value(data))


@extend_schema_field({"oneOf": [{"type": "string", "examples": ["30m", "1h"]}, {"type": "number"}]})
class Duration(AnyField):
    """`30m`, `1h`, `24h` or a number of seconds; gives seconds."""

    def __init__(self, *, min_seconds: int = 1, **kwargs: Any) -> None:
        self.min_seconds = min_seconds
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> int:
        try:
            seconds = parse_duration(data)
        except ValueError as exc:
            raise serializers.ValidationError(str(exc)) from exc
        if seconds < self.min_seconds:
            raise serializers.ValidationError(f"The duration must be at least {self.min_seconds} s.")
        return seconds

    def to_representation(self, value: Any) -> Any:
        return value


class JSONObject(serializers.DictField):
    """An object with any values. DRF's own DictField also takes other mappings; JSON has but one."""
