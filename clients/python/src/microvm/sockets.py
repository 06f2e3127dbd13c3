"""Messages and errors of a terminal's WebSocket. The extra `terminals` is imported only where it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from microvm.errors import Conflict, ConnectionFailed, MicrovmError, TerminalRefused, Unauthorized, error_of

ACKNOWLEDGED_AT = 32 << 10  # bytes; the service waits after 128 KiB that were not acknowledged
INPUT_PIECE = 64 << 10  # bytes
MOST_MESSAGE = 16 << 20  # bytes
PATIENCE = 600.0  # seconds: so long a terminal outlives its connection
FIRST_PATIENCE = 10.0  # seconds, for one that is not there yet
FIRST_WAIT, LONGEST_WAIT = 0.25, 5.0
TOKEN_ENDED, GOING_AWAY = 4401, 1001
REQUEST = "client"


def socket_address(url: str, token: str) -> str:
    """The WebSocket of a sandbox."""
    parts = urlsplit(url)
    scheme = "wss" if parts.scheme == "https" else "ws"
    return urlunsplit((scheme, parts.netloc, f"{parts.path.rstrip('/')}/ws", urlencode({"token": token}), ""))


def require_extra() -> None:
    """Raises MicrovmError where the extra is not installed."""
    if find_spec("websockets") is None:
        raise MicrovmError("Terminals are not installed: pip install 'microvm[terminals]'")


def socket_errors() -> tuple[type[Exception], ...]:
    """All that a connection may end with."""
    from websockets.exceptions import WebSocketException

    return (WebSocketException, OSError)


def lasting_error(error: Exception) -> MicrovmError | None:
    """Return the error for a connection that ended or was not made; None if it is tried again."""
    from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI

    if isinstance(error, InvalidURI):  # its text has the address, and that the token
        return ConnectionFailed("The address of the sandbox is none of a WebSocket.")
    if isinstance(error, InvalidStatus):
        status = error.response.status_code
        return None if status == 429 or status >= 500 else error_of(status, bytes(error.response.body or b""))
    closed = error.rcvd if isinstance(error, ConnectionClosed) else None
    if closed is not None and closed.code == TOKEN_ENDED:
        message = f"The token of the sandbox has ended: {closed.reason}."
        return Unauthorized(401, {"code": "unauthorized", "message": message})
    if closed is not None and closed.code == GOING_AWAY:
        message = f"The sandbox does not run any more: {closed.reason}."
        return Conflict(409, {"code": "vm_not_running", "message": message})
    return None


@dataclass
class TerminalPlace:
    """The place where a new connection goes on: a terminal's id, and `received`, the offset of its next byte of output.

    `program`: the fields of its creation. `exit_code` and `signal` (a name) are there when `is_ended`.
    """

    program: Mapping[str, Any]
    id: int | None = None
    received: int = 0
    exit_code: int | None = None
    signal: str | None = None
    is_ended: bool = False
    _unacknowledged: int = 0

    def first_message(self) -> str:
        """Asks for the terminal, or for the rest of its output."""
        attach = {"action": "terminal_attach", "id": self.id, "offset": self.received}
        body = {"action": "terminal_create", **self.program} if self.id is None else attach
        return json.dumps({**body, "ack": True, "requestId": REQUEST})

    def is_begun_by(self, message: str | bytes) -> bool:
        """Whether it is the answer to `first_message`. Raises TerminalRefused."""
        if isinstance(message, bytes):
            return False
        found = json.loads(message)
        if found.get("requestId") != REQUEST:
            return False
        _raise_for_error(found)
        self.id = int(found["terminalId"])
        self._unacknowledged = 0
        return True

    def skipped_by(self, message: str | bytes) -> int:
        """How many bytes of output before what follows are lost."""
        found = {} if isinstance(message, bytes) else json.loads(message)
        if found.get("type") != "terminal_attached" or found.get("terminalId") != self.id:
            return 0
        self.received = int(found["offset"])
        return int(found.get("skipped") or 0)

    def output_in(self, message: str | bytes) -> bytes:
        """Output of this terminal, which counts as received. Raises TerminalRefused where it is gone."""
        if isinstance(message, bytes):
            part = message[1:] if message[:1] == bytes([self.id or 0]) else b""
            self.received += len(part)
            return part
        found = json.loads(message)
        if found.get("terminalId") == self.id:
            _raise_for_error(found)
            if found.get("type") == "terminal_exited":
                self.exit_code, self.signal, self.is_ended = found.get("exitCode"), found.get("signal"), True
            if found.get("type") == "terminal_closed":
                raise TerminalRefused("terminal_closed", "The terminal was closed.")
        return b""

    def acknowledgement(self, size: int) -> str | None:
        """Return the message to send after that many more bytes were used; None if none is due yet."""
        self._unacknowledged += size
        if self._unacknowledged < ACKNOWLEDGED_AT:
            return None
        done, self._unacknowledged = self._unacknowledged, 0
        return json.dumps({"a": "k", "id": self.id, "n": done})


def _raise_for_error(found: Mapping[str, Any]) -> None:
    if found.get("type") == "terminal_error":
        raise TerminalRefused(str(found.get("code", "")), str(found.get("message", "")))
