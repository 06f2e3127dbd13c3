"""Frames that a client may send over the socket (wire contract, section 4b). Parsing only: nothing here waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workspaces.data_plane.sockets.json_frames import read_object
from workspaces.data_plane.sockets.terminal import MAX_INPUT

MAX_SIZE = 1000  # columns and rows
MAX_ID = 255
MAX_OFFSET = (1 << 63) - 1


class FrameInvalid(Exception):
    """An invalid frame; the socket stays open."""

    def __init__(self, code: str, message: str, id: int | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.id = code, message, id


@dataclass(frozen=True, slots=True)
class Input:
    id: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Resize:
    id: int
    cols: int
    rows: int


@dataclass(frozen=True, slots=True)
class Attach:
    id: int
    offset: int


Frame = Input | Resize | Attach


def parse_frame(data: str | bytes) -> Frame:
    """Return a frame of a client. Raise FrameInvalid."""
    if isinstance(data, bytes):
        return _parse_input(data)
    try:
        found = read_object(data)
    except ValueError as error:
        raise FrameInvalid("invalid_json", str(error)) from error
    if found.get("channel") == "terminal":
        if found.get("type") == "resize":
            id = _id(found)
            return Resize(id, _number(found, "cols", 1, MAX_SIZE, id), _number(found, "rows", 1, MAX_SIZE, id))
        if found.get("type") == "attach":
            id = _id(found)
            return Attach(id, _number(found, "offset", 0, MAX_OFFSET, id))
    raise FrameInvalid("unknown_frame", "A client sends input, and frames of the types resize and attach.")


def _parse_input(data: bytes) -> Input:
    if not data:
        raise FrameInvalid("validation_error", "A binary frame begins with the id of a terminal.")
    if len(data) > MAX_INPUT + 1:
        raise FrameInvalid("input_too_large", f"The input of one frame is at most {MAX_INPUT} bytes.", data[0])
    return Input(data[0], data[1:])


def _id(found: dict[str, Any]) -> int:
    """Return the id, which is text as in all routes; existing clients may send it as a number."""
    value = found.get("id")
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not (text.isascii() and text.isdecimal() and len(text) <= 3):
        raise FrameInvalid("validation_error", "id: the id of a terminal, as text.")
    if not 0 < int(text) <= MAX_ID:
        raise FrameInvalid("terminal_not_found", "There is no such terminal.")
    return int(text)


def _number(found: dict[str, Any], name: str, low: int, high: int, id: int) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise FrameInvalid("validation_error", f"{name}: a whole number from {low} to {high}.", id)
    return value
