"""The text of an event stream (wire contract, section 3)."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from django.core.serializers.json import DjangoJSONEncoder

HEARTBEAT_SECONDS = 15.0
HEARTBEAT = b": heartbeat\n\n"
RETRY = b"retry: 2000\n\n"
MESSAGE, GAP = "message", "gap"
_ID = re.compile(r"([0-9a-f]{8})-([0-9]{1,15})")


class EventId(NamedTuple):
    """`epoch` names one life of a replay buffer; `number` counts its events from 1, without a gap and never reused."""

    epoch: str
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.number}"


def parse_id(text: str | None) -> EventId | None:
    """Return the id that a reconnecting client sends; None for an absent or malformed one."""
    found = _ID.fullmatch(text or "")
    return EventId(found[1], int(found[2])) if found else None


def frame(event_id: EventId, kind: str, data: str) -> bytes:
    """Return the frame of one event. `data` is JSON as `one_line` makes it."""
    return f"event: {kind}\nid: {event_id}\ndata: {data}\n\n".encode()


def plain_frame(kind: str, value: Any) -> bytes:
    """Return an event of a stream that no client can return to: it has no id."""
    return f"event: {kind}\ndata: {one_line(value)}\n\n".encode()


def comment(text: str) -> bytes:
    """Return a comment line: ignored by clients, readable in a log."""
    return b": " + " ".join(text.split()).encode("ascii", "replace") + b"\n\n"


def one_line(value: Any) -> str:
    """Return JSON without a line end: ASCII alone, as some clients also end a line at U+2028 or a lone carriage
    return.
    """
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), cls=DjangoJSONEncoder)
