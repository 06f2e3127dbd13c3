"""Standard input of a command, sent in parts while the command runs."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Self
from uuid import uuid4

from microvm.aio.transport import AsyncTransport
from microvm.aio.waiting import AsyncBeside, sleep
from microvm.errors import Conflict, NotFound
from microvm.retries import Sending
from microvm.transfers import RAW

PART = 1 << 20  # bytes, at most, of the service
# A command that has not begun has no input yet.
UNTIL_BEGUN = 0.1
# A part waits up to 20 seconds for a command that does not read.
PART_SECONDS = 60.0


class AsyncCommandInput:
    """The parts of one command's input; None: it has no such input. They are sent until the block is left."""

    def __init__(self, transport: AsyncTransport, exec_path: str, parts: AsyncIterable[bytes] | None) -> None:
        self._transport = transport
        self._key = uuid4().hex
        self._path = f"{exec_path}/{self._key}/input"
        self._parts = parts
        self._failure: Exception | None = None
        self._is_over = False
        self._sending: AsyncBeside | None = None

    @property
    def body(self) -> dict[str, Any]:
        """Return the fields that the command's request carries for its input."""
        return {} if self._parts is None else {"stdin_key": self._key}

    async def __aenter__(self) -> Self:
        if self._parts is not None:
            self._sending = AsyncBeside(self._send)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over = True
        if self._sending is not None:
            await self._sending.end()

    def require_sent(self) -> None:
        """Raises what has ended the input before its end: of the parts themselves, ApiError, ConnectionFailed."""
        if self._failure is not None:
            raise self._failure

    async def _send(self) -> None:
        try:
            await self._send_parts()
        except Exception as error:  # raised again by `require_sent`
            self._failure = error

    async def _send_parts(self) -> None:
        offset = 0
        if self._parts is None:
            return
        async for part in self._parts:
            for start in range(0, len(part), PART):
                piece = bytes(part[start : start + PART])
                if not await self._is_taken(offset, piece):
                    return
                offset += len(piece)
        await self._is_taken(offset, b"", eof=True)

    async def _is_taken(self, offset: int, piece: bytes, *, eof: bool = False) -> bool:
        """Send one part until the command takes it. False where it reads no more."""

        async def content() -> AsyncIterator[bytes]:
            yield piece

        headers = {"Content-Type": RAW, "Content-Length": str(len(piece))}
        query = {"offset": offset, "eof": "true" if eof else None}
        sending = Sending("POST", self._path, query, None, headers, PART_SECONDS, is_idempotent=True)
        while not self._is_over:
            try:
                async with self._transport.opened(sending, content) as response:
                    await response.aread()
                return True
            except NotFound:
                await sleep(UNTIL_BEGUN)
            except Conflict as error:
                if error.code == "input_closed":
                    return False
                if error.code != "input_full":
                    raise
        return False
