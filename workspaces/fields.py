"""Request fields that several routes share: environments and commands."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from common.fields import AnyField

ENV_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,255}")


ENV_ITEMS, ENV_BYTES = 256, 64 * 1024


CMD_ITEMS, CMD_BYTES = 256, 64 * 1024


ENV_OBJECT = {
    "type": "object",
    "required": ["key", "value"],
    "properties": {"key": {"type": "string"}, "value": {"type": "string"}},
}


@extend_schema_field({"type": "array", "items": {"oneOf": [ENV_OBJECT, {"type": "string"}]}})
class EnvField(AnyField):
    """A list of `{key, value}` items or `"KEY=VALUE"` strings; gives a dict."""

    def to_internal_value(self, data: Any) -> dict[str, str]:
        if not isinstance(data, list) or len(data) > ENV_ITEMS:
            raise serializers.ValidationError(f"Give a list of at most {ENV_ITEMS} items.")
        env = dict(self._item(item) for item in data)
        if sum(len(k.encode()) + len(v.encode()) for k, v in env.items()) > ENV_BYTES:
            raise serializers.ValidationError(f"The environment has more than {ENV_BYTES} bytes.")
        return env

    def _item(self, item: Any) -> tuple[str, str]:
        key: Any
        value: Any
        if isinstance(item, str) and "=" in item:
            key, _, value = item.partition("=")
        elif isinstance(item, dict):
            key, value = item.get("key"), item.get("value")
        else:
            raise serializers.ValidationError('Each item is {"key", "value"} or "KEY=VALUE".')
        if not isinstance(key, str) or not ENV_KEY.fullmatch(key):
            raise serializers.ValidationError("A key has letters, digits and underscores and begins with no digit.")
        if not isinstance(value, str):
            raise serializers.ValidationError(f"The value of {key} must be a string.")
        return key, value


@extend_schema_field({"oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]})
class CommandField(AnyField):
    """An array of strings, or one string that `sh -c` runs; gives a list."""

    def to_internal_value(self, data: Any) -> list[str]:
        command = ["/bin/sh", "-c", data] if isinstance(data, str) and data else data
        if not isinstance(command, list) or not all(isinstance(part, str) for part in command):
            raise serializers.ValidationError("Give an array of strings, or one string.")
        if not command or not command[0]:
            raise serializers.ValidationError("The command must not be empty.")
        if len(command) > CMD_ITEMS or sum(len(part.encode()) for part in command) > CMD_BYTES:
            raise serializers.ValidationError(f"At most {CMD_ITEMS} items and {CMD_BYTES} bytes.")
        return command
