"""Response serializers: fields with the wire's forms, and their base, fast enough for long lists."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any

from rest_framework import fields
from rest_framework import serializers as s

from common.fields import AnyField
from common.times import iso


class Timestamp(s.DateTimeField):
    """ISO 8601 in UTC with `Z` and milliseconds."""

    def to_representation(self, value: datetime) -> str:
        return iso(value)


class BlankAsNull(s.CharField):
    """Text of which a row stores the absence as an empty string; a response shows null."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(allow_null=True, **kwargs)

    def to_representation(self, value: str) -> Any:
        return value or None


class Amount(s.FloatField):
    """A Decimal as a JSON number."""

    def to_representation(self, value: Any) -> Any:
        return float(value)


class ResponseSerializer(s.Serializer[Any]):
    """The base of response objects: its fields are resolved once for the class instead of once for each object.

    Differences from DRF's own: the value of a plain field is passed on unconverted, so it must have its JSON type
    already; a field with `required=False` is left out if its value is missing or None; fields declared for the class
    count, not changes made to one instance; no callables as sources. Instances are objects or dicts.

    The value of a field that is no attribute comes from a method `read_<field>(instance)`, as with DRF's
    SerializerMethodField, but the field keeps its declared type.
    """

    def to_representation(self, instance: Any) -> dict[str, Any]:
        body = {}
        for name, read, convert, optional in _steps(type(self), isinstance(instance, dict)):
            value = read(instance)
            if value is None:
                if optional:
                    continue
            elif convert is not None:
                value = convert(value)
            body[name] = value
        return body


# Name, reader of the value, conversion, whether the field may be left out.
_Step = tuple[str, Callable[[Any], Any], Callable[[Any], Any] | None, bool]
# Their conversion does nothing to a value that has its JSON type.
_PLAIN = frozenset(
    {s.CharField, s.BooleanField, s.IntegerField, s.FloatField, s.ChoiceField, s.ListField, s.DictField, s.JSONField}
)


@cache
def _steps(serializer_class: type[ResponseSerializer], of_dict: bool) -> tuple[_Step, ...]:
    serializer = serializer_class()
    return tuple(
        (
            name,
            getattr(serializer, f"read_{name}", None) or _reader(field, of_dict),
            None if _is_plain(field) else field.to_representation,
            not field.required and field.default is fields.empty,
        )
        for name, field in serializer.fields.items()
    )


def _is_plain(field: AnyField) -> bool:
    return type(field) in _PLAIN and not isinstance(getattr(field, "child", None), s.BaseSerializer)


def _reader(field: AnyField, of_dict: bool) -> Callable[[Any], Any]:
    source = str(field.source)
    if source == "*":
        return lambda instance: instance
    if field.default is not fields.empty:
        return lambda instance: _get(instance, source, field.default, of_dict)
    if not field.required:
        return lambda instance: _get(instance, source, None, of_dict)
    return _item_reader(source) if of_dict else attrgetter(source)


def _item_reader(source: str) -> Callable[[Any], Any]:
    """Return a reader of `key`, or `key.attribute`."""
    key, _, attribute = source.partition(".")
    if not attribute:
        return itemgetter(key)
    read = attrgetter(attribute)
    return lambda instance: read(instance[key])


def _get(instance: Any, source: str, default: Any, of_dict: bool) -> Any:
    return instance.get(source, default) if of_dict else getattr(instance, source, default)
