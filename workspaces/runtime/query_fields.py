"""Fields of queries of the runtime, whose values are text: `true`, `12`, `a,b`. Each names itself if it is wrong."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl

from django.http import HttpRequest
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.errors import ValidationError
from common.fields import AnyField
from workspaces.data_plane.fields import MAX_PATTERNS, PathField, PatternField, TextField
from workspaces.files.paths import MAX_QUERY_FIELDS

MODE = re.compile(r"0?[0-7]{3}")


class QueryBoolean(serializers.BooleanField):
    """`true` or `false`."""

    def to_internal_value(self, data: Any) -> bool:
        if data not in ("true", "false"):
            raise serializers.ValidationError("Give true or false.")
        return bool(data == "true")


class QueryInteger(serializers.IntegerField):
    """A decimal number."""

    def to_internal_value(self, data: Any) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", str(data)):
            self.fail("invalid")
        return super().to_internal_value(str(data))


@extend_schema_field({"type": "string", "examples": ["/workspace/src"]})
class QueryPath(PathField):
    """An absolute path inside the machine; its bytes, percent-encoded, may be anything."""


@extend_schema_field({"type": "string"})
class QueryList(AnyField):
    """Values that are separated by commas, at most MAX_PATTERNS; empty ones are left out."""

    def __init__(self, item: serializers.Field[Any, Any, Any, Any], **kwargs: Any) -> None:
        super().__init__(required=False, default=list, **kwargs)
        self._item = item

    def to_internal_value(self, data: Any) -> list[Any]:
        if not isinstance(data, str):
            raise serializers.ValidationError("A string is required.")
        given = [item for item in data.split(",") if item]
        if len(given) > MAX_PATTERNS:
            raise serializers.ValidationError(f"At most {MAX_PATTERNS} values are accepted.")
        return [self._item.run_validation(item) for item in given]

    def to_representation(self, value: Any) -> Any:
        return value


class QueryPatterns(QueryList):
    """Patterns of names in the syntax of gitignore."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(PatternField(), **kwargs)


@extend_schema_field({"type": "string", "examples": ["0644"]})
class ModeField(AnyField):
    """Permission bits in octal."""

    def to_internal_value(self, data: Any) -> int:
        if not isinstance(data, str) or not MODE.fullmatch(data):
            raise serializers.ValidationError("Give permission bits in octal, from 0000 to 0777.")
        return int(data, 8)

    def to_representation(self, value: Any) -> str:
        return f"{value:04o}"


def read_query(serializer: type[serializers.Serializer[Any]], request: HttpRequest) -> dict[str, Any]:
    """Return the query's documented parameters; of one that is given more than once the last. Bytes of paths that are
    not UTF-8 are surrogates. Raise ValidationError, which names each wrong parameter; unknown ones are ignored.
    """
    checked = serializer(data=_values(request, serializer))
    checked.is_valid(raise_exception=True)
    found: dict[str, Any] = checked.validated_data
    return found


def _values(request: HttpRequest, serializer: type[serializers.Serializer[Any]]) -> dict[str, str]:
    try:
        given = parse_qsl(
            request.META.get("QUERY_STRING", ""),
            keep_blank_values=True,
            errors="surrogateescape",
            max_num_fields=MAX_QUERY_FIELDS,
        )
    except ValueError as exc:
        raise ValidationError("The query has too many fields.") from exc
    fields = serializer().fields
    values = {name: value for name, value in given if name in fields}
    for name, value in values.items():
        if not isinstance(fields[name], PathField) and not _is_text(value):
            raise ValidationError(details={name: ["The value is not UTF-8."]})
    return values


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class QueryText(TextField):
    """Text without NUL characters of at most `max_bytes`."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if "\0" in text:
            raise serializers.ValidationError("NUL characters are not accepted.")
        return text
