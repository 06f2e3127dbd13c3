"""The content of a send: checked when it is accepted, and fitted to what a provider takes. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import ValidationError

MOST_DATA_BYTES = 4096
DEFAULT_CHANNEL = "workspace"
MOST_CHANNEL_CHARACTERS = 64
# The most bytes of what FCM counts as the payload.
FCM_BYTES = 4096
# The most bytes of clear text: 4,096 less the header of aes128gcm (86), its tag (16) and delimiter (1).
WEB_PUSH_BYTES = 3993
NOT_TEXT = "The text has half of a surrogate pair, which is not a character."


@dataclass(frozen=True, slots=True)
class Content:
    """A notification. `data`: strings by key."""

    title: str
    body: str
    data: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON for the row and for browsers; empty fields are left out."""
        parts = {"title": self.title, "body": self.body, "data": dict(self.data)}
        return {name: value for name, value in parts.items() if value}

    @classmethod
    def of_json(cls, stored: Mapping[str, Any]) -> Content:
        """Return the content that `as_json` made."""
        return cls(stored.get("title", ""), stored.get("body", ""), stored.get("data", {}))


class TooLarge(Exception):
    """The error that a notification does not fit, even without its body."""


def compact_json(value: Any) -> bytes:
    """Return the value as JSON without spaces. Raise UnicodeEncodeError."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def compact_size(value: Any, field: str) -> int:
    """Return bytes as JSON. Raise ValidationError, which names the field, for text that is none."""
    try:
        return len(compact_json(value))
    except UnicodeEncodeError:
        raise ValidationError(details={field: [NOT_TEXT]}) from None


def data_strings(data: Mapping[str, Any]) -> dict[str, str]:
    """Return strings as they are, and other values as JSON. Raise ValidationError (more than 4 KiB, or not text)."""
    try:
        found = {key: value if isinstance(value, str) else compact_json(value).decode() for key, value in data.items()}
    except UnicodeEncodeError:
        raise ValidationError(details={"data": [NOT_TEXT]}) from None
    size = compact_size(found, "data")
    if size > MOST_DATA_BYTES:
        raise ValidationError(details={"data": [f"At most {MOST_DATA_BYTES} bytes as JSON; it has {size}."]})
    return found


def content_of(
    *, title: str, body: str, data: Mapping[str, Any], workspace_id: str, metadata: Mapping[str, Any]
) -> Content:
    """Return the notification of a request. The platform sets the keys that name the sender, whatever `data` says.

    Raise ValidationError by field.
    """
    for field, text in (("title", title), ("body", body)):
        compact_size(text, field)
    own = {"workspace_id": workspace_id, "channel": channel_of(metadata)}
    return Content(title, body, {**data_strings(data), **own})


def channel_of(metadata: Mapping[str, Any]) -> str:
    """Return the channel of a token: its metadata's `channel` if that is a short text, else `workspace`."""
    named = metadata.get("channel")
    return named if isinstance(named, str) and 0 < len(named) <= MOST_CHANNEL_CHARACTERS else DEFAULT_CHANNEL


def fitted(content: Content, most_bytes: int) -> Content:
    """Return the same with as much of the body as fits, cut between characters. Raise TooLarge; data is never cut."""
    if _size(content, content.body) <= most_bytes:
        return content
    if _size(content, "") > most_bytes:
        raise TooLarge
    # A character more is never fewer bytes, so the longest that fits is found by halving.
    low, high = 0, len(content.body)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if _size(content, content.body[:middle]) <= most_bytes else (low, middle)
    return Content(content.title, content.body[:low], content.data)


def _size(content: Content, body: str) -> int:
    return len(compact_json({"title": content.title, "body": body, "data": dict(content.data)}))
