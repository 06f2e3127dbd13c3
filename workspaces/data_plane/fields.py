"""Request fields of levels inside a machine: paths, texts of files, environments. Each names itself if it is wrong."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote_to_bytes

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.fields import AnyField, BoundedList
from workspaces.fields import ENV_BYTES, ENV_ITEMS, ENV_KEY
from workspaces.files.paths import displayed_path, encoded_path

MAX_PATH = 4096  # bytes; the kernel's limit, its final NUL included
MAX_NAME = 255
MAX_PATTERNS = 100
MAX_PATTERN = 1000
ENCODED = {"type": "object", "required": ["encoded"], "properties": {"encoded": {"type": "string"}}}


@extend_schema_field({"oneOf": [{"type": "string", "examples": ["/workspace/src"]}, ENCODED]})
class PathField(AnyField):
    """An absolute path inside the machine; bytes that are not UTF-8 as surrogates.

    A string, or `{"encoded": ...}` with the percent-encoded bytes, as `encodedPath` of a listing has them.
    """

    def to_internal_value(self, data: Any) -> str:
        path = text_or_encoded(data)
        if not path.startswith("/"):
            raise serializers.ValidationError("An absolute path is required.")
        return checked_text(path, MAX_PATH, "path")

    def to_representation(self, value: Any) -> Any:
        return displayed_path(value)


@extend_schema_field({"type": "string"})
class FileNameField(AnyField):
    """A name in a directory."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data in ("", ".", "..") or "/" in data:
            raise serializers.ValidationError("A name without slashes is required.")
        return checked_text(data, MAX_NAME + 1, "name")

    def to_representation(self, value: Any) -> Any:
        return value


@extend_schema_field({"type": "string"})
class TextField(AnyField):
    """Any text, kept as it is: blanks, NUL characters and all. `max_bytes`: in UTF-8."""

    def __init__(self, *, max_bytes: int | None = None, allow_empty: bool = True, **kwargs: Any) -> None:
        self.max_bytes = max_bytes
        self.allow_empty = allow_empty
        super().__init__(**kwargs)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            raise serializers.ValidationError("A string is required.")
        if not data and not self.allow_empty:
            raise serializers.ValidationError("This field may not be blank.")
        if self.max_bytes is not None and len(data.encode()) > self.max_bytes:
            raise serializers.ValidationError(f"At most {self.max_bytes} bytes are accepted.")
        return data

    def to_representation(self, value: Any) -> Any:
        return value


@extend_schema_field({"type": "string"})
class ArgumentField(TextField):
    """Text that becomes a part of a command line: no NUL character."""

    def to_internal_value(self, data: Any) -> str:
        text = super().to_internal_value(data)
        if "\0" in text:
            raise serializers.ValidationError("NUL characters are not accepted.")
        return text


class PatternField(ArgumentField):
    """A pattern of names in the syntax of gitignore."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_bytes=MAX_PATTERN, allow_empty=False, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        pattern = super().to_internal_value(data)
        if "\n" in pattern or not re.sub(r"^!", "", pattern).strip("/"):
            raise serializers.ValidationError("This is not a valid pattern for names.")
        return pattern


class PatternsField(BoundedList):
    """At most MAX_PATTERNS patterns."""

    child = PatternField()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=MAX_PATTERNS, required=False, default=list, **kwargs)


@extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
class EnvironmentField(AnyField):
    """`{NAME: value}`, as the environment of a command."""

    def to_internal_value(self, data: Any) -> dict[str, str]:
        if not isinstance(data, dict) or len(data) > ENV_ITEMS:
            raise serializers.ValidationError(f"Give an object of at most {ENV_ITEMS} variables.")
        for key, value in data.items():
            if not ENV_KEY.fullmatch(key):
                raise serializers.ValidationError(
                    "A name has letters, digits and underscores, and does not begin with a digit."
                )
            if not isinstance(value, str) or "\0" in value:
                raise serializers.ValidationError(f"The value of {key} must be a string without NUL characters.")
        if sum(len(key.encode()) + len(value.encode()) for key, value in data.items()) > ENV_BYTES:
            raise serializers.ValidationError(f"The environment has more than {ENV_BYTES} bytes.")
        return dict(data)

    def to_representation(self, value: Any) -> Any:
        return value


def text_or_encoded(data: Any) -> str:
    """Return a string, or `{"encoded": ...}` with percent-encoded bytes. Raise DRF's ValidationError."""
    if isinstance(data, dict) and isinstance(data.get("encoded"), str):
        return unquote_to_bytes(data["encoded"]).decode("utf-8", "surrogateescape")
    if not isinstance(data, str):
        raise serializers.ValidationError("A string is required.")
    return data


def checked_text(text: str, limit: int, what: str) -> str:
    """Return the text of a path or name, of fewer than `limit` bytes. Raise DRF's ValidationError."""
    if "\0" in text:
        raise serializers.ValidationError(f"A {what} must not have NUL characters.")
    if len(text.encode("utf-8", "surrogateescape")) >= limit:
        raise serializers.ValidationError(f"A {what} must have fewer than {limit} bytes.")
    return text


def path_fields(path: str, name: str = "path") -> dict[str, str]:
    """Return a path in a response: as text, and, if it is not UTF-8, its percent-encoded bytes as `encoded...`."""
    encoded = encoded_path(path)
    shown = {name: displayed_path(path)}
    return shown if encoded is None else {**shown, f"encoded{name[0].upper()}{name[1:]}": encoded}
