"""One connection to a hold: requests with their answers, and what the guest sends by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from vmbackend.errors import BackendError, GuestUnreachable
from vmbackend.guest.translate import UNREACHABLE

from .errors import make_error
from .frames import MAGIC, VERSION, Answer, Fields, FrameReader, GuestGarbage, Request, make_frame, number
from .transport import Transport

T = TypeVar("T")
_BLOCK = 32 * 1024
_MAX_REQUEST_ID = 1 << 32
# What is not the answer to a request.
_UNASKED = {*Answer} - {Answer.WELCOME, Answer.DONE, Answer.FAILED}

# A receiver of messages about a terminal or a watch: link, kind, id, fields. Raises GuestGarbage.
Receive = Callable[["HoldLink", int, int, Fields], None]


class LinkOpener(Protocol):
    """The object from which terminals get their connection."""

    async def connect_guest(self) -> HoldLink:
        """Return the open connection, or a new one. Raise GuestUnreachable, HoldUnsupported."""

    async def answering_link(self) -> HoldLink:
        """Return a connection that is known to work, for what is sent only once. Raise what `connect_guest` raises."""

    async def repeat_request(self, kind: Request, *parts: bytes, read: Callable[[Fields], T]) -> T:
        """Send a request that may be carried out twice; it is sent again, once, if the connection turns out to be
        lost.
        """

    def forget_terminal(self, id: int) -> None:
        """Forget a terminal that was closed."""

    def register_watch(self, id: int, receive: Callable[[HoldLink, Fields], None]) -> None:
        """Register a watch that began: its events go to `receive`."""

    def forget_watch(self, id: int) -> None:
        """Forget a watch that ended."""


class HoldLink:
    """A link to the guest. Belongs to one event loop. Lost for good once the transport fails or the guest violates the
    protocol.
    """

    def __init__(self, transport: Transport, receive: Receive) -> None:
        self._transport = transport
        self._receive = receive
        self._answers: dict[int, tuple[asyncio.Future[Any], Callable[[Fields], Any]]] = {}
        self._last = 0
        self._reading: asyncio.Task[None] | None = None
        self.lost: asyncio.Future[BackendError] = asyncio.get_running_loop().create_future()
        self.instance = b""
        self.buffer_size = 0
        self.heard_at = time.monotonic()  # when the guest last sent anything
        # What its bytes cost, one after another: all that one block has woken would run in one turn of the loop.
        self.turn = asyncio.Lock()

    async def greet(self, client_id: bytes) -> None:
        """Make the first exchange. Raise GuestUnreachable, HoldUnsupported; the caller closes the link then."""
        self._transport.write(make_frame(Request.HELLO, 0, MAGIC, number(VERSION, 2), client_id))
        reader = FrameReader()
        while True:
            block = await self._transport.read(_BLOCK)
            if not block:
                raise await self._transport.explain_end()
            # Nothing follows the first frame before a request.
            for kind, _, fields in reader.frames(block):
                self._welcome(kind, fields)
                self._reading = asyncio.ensure_future(self._read_forever(reader))
                return

    def _welcome(self, kind: int, fields: Fields) -> None:
        if kind == Answer.FAILED:
            raise make_error(fields.number(2), fields.rest())
        if kind != Answer.WELCOME or fields.part(len(MAGIC)) != MAGIC or fields.number(2) != VERSION:
            raise GuestGarbage
        self.instance = fields.part(8)
        self.buffer_size = fields.number(4)
        fields.require_end()

    async def request(self, kind: Request, *parts: bytes, read: Callable[[Fields], T]) -> T:
        """Send a request and wait for its answer, which `read` reads before anything that the guest sent after it.

        Raise the guest's failure, or GuestUnreachable if the link is lost, also by an answer that `read` refuses.
        """
        self.require_alive()
        self._last = (self._last + 1) % _MAX_REQUEST_ID
        about = self._last
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._answers[about] = answer, read
        try:
            await self._send(make_frame(kind, about, *parts))
            return await answer
        finally:
            self._answers.pop(about, None)
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, also if sending failed first

    async def _send(self, frame: bytes) -> None:
        """Send a frame. A transport that does not take it is lost, though its end was not read yet."""
        try:
            self._transport.write(frame)
            await self._transport.drain()
        except BackendError as error:
            self._lose(error)
            raise

    def post(self, kind: Request, *parts: bytes) -> None:
        """Send what gets no answer; a lost link drops it."""
        with suppress(BackendError):
            if not self.lost.done():
                self._transport.write(make_frame(kind, 0, *parts))

    async def send(self, kind: Request, *parts: bytes) -> None:
        """Send what gets no answer, and wait until little is on its way. Raise GuestUnreachable if the link is lost."""
        self.require_alive()
        await self._send(make_frame(kind, 0, *parts))

    async def rest(self, seconds: float) -> None:
        """Charge the guest for CPU time that what it sent has cost, and wait as long as it has to."""
        await asyncio.sleep(self._transport.spend_time(seconds))

    def require_alive(self) -> None:
        """Raise GuestUnreachable once the link is lost."""
        if self.lost.done():
            raise GuestUnreachable(UNREACHABLE)

    async def close(self) -> None:
        """End the connection; requests fail. Idempotent."""
        self._lose(GuestUnreachable(UNREACHABLE))
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])
        await self._transport.close()

    async def _read_forever(self, reader: FrameReader) -> None:
        error: BackendError = GuestUnreachable(UNREACHABLE)
        try:
            block = b""
            while True:
                self.heard_at = time.monotonic()
                begun = time.thread_time()
                for kind, about, fields in reader.frames(block):
                    self._dispatch(kind, about, fields)
                # The smallest frames take more time than the packets they come in; what has arrived is read at once.
                await asyncio.sleep(self._transport.spend_time(time.thread_time() - begun))
                if not (block := await self._transport.read(_BLOCK)):
                    return
        except BackendError as failure:
            error = failure
        finally:
            self._lose(error)
            # Not this one's own task: `close` may wait for it.
            with suppress(BackendError):
                await self._transport.close()

    def _dispatch(self, kind: int, about: int, fields: Fields) -> None:
        if kind in (Answer.DONE, Answer.FAILED):
            # Requests that were cancelled are not known any more.
            answer, read = self._answers.get(about, (None, None))
            if answer is None or read is None or answer.done():
                return
            if kind == Answer.DONE:
                answer.set_result(read(fields))
            else:
                answer.set_exception(make_error(fields.number(2), fields.rest()))
        elif kind in _UNASKED:
            self._receive(self, kind, about, fields)
        else:
            raise GuestGarbage

    def _lose(self, error: BackendError) -> None:
        if self.lost.done():
            return
        self.lost.set_result(error)
        for answer, _ in self._answers.values():
            if not answer.done():
                answer.set_exception(GuestUnreachable(error.message))
