"""Server-sent events: bytes to events."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

_LONGEST_LINE = 16 << 20  # bytes


@dataclass(frozen=True)
class Event:
    """One event. `kind` is `message`, or `gap` where earlier ones are missing; `data` is its JSON."""

    id: str
    kind: str
    data: Any


@dataclass
class StreamPlace:
    """The position of a stream, from which the next connection goes on. `wait`: seconds before it."""

    last_id: str = ""
    wait: float = 2.0

    def headers(self) -> dict[str, str]:
        return {"Accept": "text/event-stream"} | ({"Last-Event-ID": self.last_id} if self.last_id else {})


@dataclass
class EventParser:
    """The events of one connection; keeps `place` up to date. An event that was not received whole is left out."""

    place: StreamPlace
    _rest: bytes = b""
    _fields: dict[str, list[str]] = field(default_factory=dict)

    def events_in(self, part: bytes) -> list[Event]:
        """The events that end in these bytes. Raises ValueError for data that is no JSON, or a line without end."""
        *lines, self._rest = (self._rest + part).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            raise ValueError("A line of the stream is too long.")
        made = [self._read_line(line.removesuffix(b"\r").decode("utf-8", "replace")) for line in lines]
        return [event for event in made if event is not None]

    def _read_line(self, line: str) -> Event | None:
        if not line:
            return self._end_of_event()
        name, _, value = line.partition(":")
        if name:
            self._fields.setdefault(name, []).append(value.removeprefix(" "))
        return None

    def _end_of_event(self) -> Event | None:
        fields, self._fields = self._fields, {}
        if (wait := fields.get("retry", [""])[-1]).isdecimal():
            self.place.wait = int(wait) / 1000
        if "id" in fields:
            self.place.last_id = fields["id"][-1]
        if "data" not in fields:
            return None
        kind = fields.get("event", ["message"])[-1]
        return Event(self.place.last_id, kind, json.loads("\n".join(fields["data"])))
