"""Standard input of a command, sent in parts while the command runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self
from uuid import uuid4

from microvm.errors import Conflict, NotFound
from microvm.retries import Sending
from microvm.sync.transport import Transport
from microvm.sync.waiting import Beside, sleep
from microvm.transfers import RAW

PART = 1 << 20  # bytes, at most, of the service
# A command that has not begun has no input yet.
UNTIL_BEGUN = 0.1
# A part waits up to 20 seconds for a command that does not read.
PART_SECONDS = 60.0


class CommandInput:
    """The parts of one command's input; None: it has no such input. They are sent until the block is left."""

    def __init__(self, transport: Transport, exec_path: str, parts: Iterable[bytes] | None) -> None:
        self._transport = transport
        self._key = uuid4().hex
        self._path = f"{exec_path}/{self._key}/input"
        self._parts = parts
        self._failure: Exception | None = None
        self._is_over = False
        self._sending: Beside | None = None

    @property
    def body(self) -> dict[str, Any]:
        """What the request of the command has for it."""
        return {} if self._parts is None else {"stdin_key": self._key}

    def __enter__(self) -> Self:
        if self._parts is not None:
            self._sending = Beside(self._send)
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._sending is not None:
            self._sending.end()

    def require_sent(self) -> None:
        """Raises what has ended the input before its end: of the parts themselves, ApiError, ConnectionFailed."""
        if self._failure is not None:
            raise self._failure

    def _send(self) -> None:
        try:
            self._send_parts()
        except Exception as error:  # raised again by `require_sent`
            self._failure = error

    def _send_parts(self) -> None:
        offset = 0
        if self._parts is None:
            return
        for part in self._parts:
            for start in range(0, len(part), PART):
                piece = bytes(part[start : start + PART])
                if not self._is_taken(offset, piece):
                    return
                offset += len(piece)
        self._is_taken(offset, b"", eof=True)

    def _is_taken(self, offset: int, piece: bytes, *, eof: bool = False) -> bool:
        """Send one part until the command takes it. False where it reads no more."""

        def content() -> Iterator[bytes]:
            yield piece

        headers = {"Content-Type": RAW, "Content-Length": str(len(piece))}
        query = {"offset": offset, "eof": "true" if eof else None}
        sending = Sending("POST", self._path, query, None, headers, PART_SECONDS, is_idempotent=True)
        while not self._is_over:
            try:
                with self._transport.opened(sending, content) as response:
                    response.read()
                return True
            except NotFound:
                sleep(UNTIL_BEGUN)
            except Conflict as error:
                if error.code == "input_closed":
                    return False
                if error.code != "input_full":
                    raise
        return False
