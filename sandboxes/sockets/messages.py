"""Messages that a client may send over a socket (wire contract, section 4). Parsing only: nothing here waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from workspaces.data_plane.fields import MAX_PATTERN
from workspaces.data_plane.fields import MAX_PATTERNS as MAX_IGNORED
from workspaces.data_plane.sockets.json_frames import read_object
from workspaces.data_plane.sockets.terminal import MAX_INPUT

MAX_SIZE = 1000  # columns and rows
MAX_LINES = 100_000
MAX_PATH = 4095  # bytes
MAX_REQUEST_ID = 256  # characters
MAX_ID = 255  # a terminal's id is one byte on the wire
MAX_OFFSET = (1 << 63) - 1
MAX_TEXTS = 4096  # arguments
DEFAULT_LINES = 1000
RequestId = str | int | None


class MessageInvalid(Exception):
    """An invalid message; the socket stays open. `about` names the kind of error that answers it."""

    def __init__(self, code: str, message: str, request_id: RequestId = None, about: str = "terminal_error") -> None:
        super().__init__(message)
        self.code, self.message, self.request_id, self.about = code, message, request_id, about


@dataclass(frozen=True, slots=True)
class Create:
    """`argv` None: the user's shell."""

    cols: int
    rows: int
    cwd: str | None
    argv: list[str] | None
    ack: bool


@dataclass(frozen=True, slots=True)
class Attach:
    id: int
    offset: int
    ack: bool


@dataclass(frozen=True, slots=True)
class GetState:
    id: int
    lines: int
    ack: bool


@dataclass(frozen=True, slots=True)
class Close:
    id: int


@dataclass(frozen=True, slots=True)
class ListTerminals:
    pass


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
class Acknowledge:
    """The client has processed `count` more bytes of the terminal's output."""

    id: int
    count: int


@dataclass(frozen=True, slots=True)
class Watch:
    path: str
    ignore: list[str]


@dataclass(frozen=True, slots=True)
class StopWatch:
    """`id` None: all of the socket."""

    id: int | None


Message = (
    Create | Attach | GetState | Close | ListTerminals | Input | Resize | Acknowledge | Watch | StopWatch
)  # fmt: skip


def parse_binary(data: bytes) -> Message:
    """Parse input: the terminal's id, then the bytes. Raise MessageInvalid."""
    if not data:
        raise MessageInvalid("validation_error", "A binary message begins with the id of a terminal.")
    return Input(data[0], _input(data[1:]))


def parse_text(text: str) -> tuple[Message, RequestId]:
    """Return a message and its `requestId`. Raise MessageInvalid."""
    try:
        found = read_object(text)
    except ValueError as error:
        raise MessageInvalid("invalid_json", str(error)) from error
    request_id = _request_id(found)
    kind = found.get("type")
    about = "watch_error" if kind in ("watch", "stop_watch") else "terminal_error"
    try:
        return _reader(found)(found), request_id
    except MessageInvalid as error:
        raise MessageInvalid(error.code, error.message, request_id, about) from error


def _request_id(found: dict[str, Any]) -> RequestId:
    given: Any = found.get("requestId")
    fits = isinstance(given, str) and len(given) <= MAX_REQUEST_ID
    if given is None or fits or (_is_whole(given) and abs(given) <= MAX_OFFSET):
        request_id: str | int | None = given
        return request_id
    raise MessageInvalid("validation_error", f"requestId: a text of at most {MAX_REQUEST_ID} characters, or a number.")


def _reader(found: dict[str, Any]) -> Callable[[dict[str, Any]], Message]:
    for name in ("action", "a", "type"):
        value = found.get(name)
        if isinstance(value, str) and (name, value) in _READERS:
            return _READERS[name, value]
    raise MessageInvalid("unknown_action", "There is no such action.")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(found: dict[str, Any], name: str, low: int, high: int, default: int | None = None) -> int:
    value = found.get(name)
    value = default if value is None else value
    if not _is_whole(value) or not low <= value <= high:  # type: ignore[operator]
        raise MessageInvalid("validation_error", f"{name}: a whole number from {low} to {high}.")
    return value  # type: ignore[return-value]


def _flag(found: dict[str, Any], name: str) -> bool:
    value = found.get(name)
    if value is not None and not isinstance(value, bool):
        raise MessageInvalid("validation_error", f"{name}: true or false.")
    return bool(value)


def _text(found: dict[str, Any], name: str, limit: int) -> str | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value or not value or len(_encoded(value, name)) > limit:
        raise MessageInvalid("validation_error", f"{name}: a text of at most {limit} bytes, without NUL characters.")
    return value


def _texts(found: dict[str, Any], name: str) -> list[str] | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MAX_TEXTS or not all(isinstance(each, str) for each in value):
        raise MessageInvalid("validation_error", f"{name}: a list of at most {MAX_TEXTS} texts.")
    for each in value:
        if "\0" in each:
            raise MessageInvalid("validation_error", f"{name}: a text has a NUL character.")
        _encoded(each, name)
    return value


def _encoded(value: str, name: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise MessageInvalid("validation_error", f"{name}: half of a surrogate pair is not a character.") from error


def _id(found: dict[str, Any]) -> int:
    """Return the id. Both names are accepted, whichever the table has."""
    name = "id" if "id" in found else "terminalId"
    value = found.get(name)
    if not _is_whole(value):
        raise MessageInvalid("validation_error", f"{name}: the id of a terminal.")
    if not 0 <= value <= MAX_ID:  # type: ignore[operator]
        raise MessageInvalid("terminal_not_found", "There is no such terminal.")
    return value  # type: ignore[return-value]


def _input(data: bytes) -> bytes:
    if len(data) > MAX_INPUT:
        raise MessageInvalid("input_too_large", f"The input of one message is at most {MAX_INPUT} bytes.")
    return data


def _create(found: dict[str, Any]) -> Message:
    cols, rows = _number(found, "cols", 1, MAX_SIZE, 120), _number(found, "rows", 1, MAX_SIZE, 30)
    command, args = _text(found, "command", MAX_INPUT), _texts(found, "args")
    if args is not None and command is None:
        raise MessageInvalid("validation_error", "args: a command is required with them.")
    argv = None
    if command is not None:
        argv = [command, *args] if args is not None else ["/bin/sh", "-c", command]
    return Create(cols, rows, _text(found, "cwd", MAX_PATH), argv, _flag(found, "ack"))


def _read_input(found: dict[str, Any]) -> Message:
    given = found.get("d")
    if not isinstance(given, str):
        raise MessageInvalid("validation_error", "d: a text.")
    return Input(_id(found), _input(_encoded(given, "d")))


def _watch(found: dict[str, Any]) -> Message:
    path, patterns = _text(found, "path", MAX_PATH) or "/", _texts(found, "ignorePatterns") or []
    if not path.startswith("/"):
        raise MessageInvalid("validation_error", "path: an absolute path is required.")
    if len(patterns) > MAX_IGNORED:
        raise MessageInvalid("validation_error", f"ignorePatterns: at most {MAX_IGNORED} patterns.")
    for each in patterns:
        if len(each.encode()) > MAX_PATTERN or "\n" in each or not each.removeprefix("!").strip("/ "):
            text = f"ignorePatterns: a pattern of names in gitignore's syntax has at most {MAX_PATTERN} bytes."
            raise MessageInvalid("validation_error", text)
    return Watch(path, patterns)


def _stop_watch(found: dict[str, Any]) -> Message:
    given = found.get("watchId")
    if given is not None and not _is_whole(given):
        raise MessageInvalid("validation_error", "watchId: the id of a watch.")
    return StopWatch(given)


_READERS: dict[tuple[str, str], Callable[[dict[str, Any]], Message]] = {
    ("action", "terminal_create"): _create,
    ("action", "terminal_list"): lambda found: ListTerminals(),
    ("action", "terminal_attach"): lambda found: Attach(
        _id(found), _number(found, "offset", 0, MAX_OFFSET, 0), _flag(found, "ack")
    ),
    ("action", "get_state"): lambda found: GetState(
        _id(found), _number(found, "maxLines", 1, MAX_LINES, DEFAULT_LINES), _flag(found, "ack")
    ),
    ("action", "terminal_close"): lambda found: Close(_id(found)),
    ("a", "i"): _read_input,
    ("a", "r"): lambda found: Resize(
        _id(found), _number(found, "cols", 1, MAX_SIZE), _number(found, "rows", 1, MAX_SIZE)
    ),
    ("a", "k"): lambda found: Acknowledge(_id(found), _number(found, "n", 0, MAX_OFFSET)),
    ("type", "watch"): _watch,
    ("type", "stop_watch"): _stop_watch,
}
