"""uvicorn's WebSocket protocol (wsproto), with bounds for what one client makes the loop do that all clients share.

One minor version of uvicorn is allowed (pyproject.toml), because this overrides its internals:
- What has come is parsed in slices, with a turn of the loop between them, and message by message as the application
  takes them; nothing is read until then. As it is, 256 KiB of the smallest frames are handled in one step.
- Frames that are no message are counted, and too many of them close the connection (1008).
- Before the handshake nothing is read: it would be kept without a limit while a sandbox wakes.
- A pong is not queued for a client that reads nothing: pings would take memory without a limit. Nor is it written to a
  connection that is closing: each such write would be a line of the log.
- After 1008 and 1009 what the client is still sending is read and dropped for some seconds: a connection that is closed
  in the middle of it would lose the close frame.
- A connection whose client does not take the rest is cut; by itself it would stay for as long as the client does.
"""

from __future__ import annotations

from asyncio import Handle
from typing import Any

import wsproto
from uvicorn._types import WebSocketEvent
from uvicorn.protocols.websockets.wsproto_impl import FrameTooLargeError, WSProtocol
from wsproto import events
from wsproto.utilities import LocalProtocolError

from config.next_turn import handle_next_turn

TOO_LARGE, TOO_MANY = 1009, 1008
# Events of the parser in one turn of the loop: some tenths of a millisecond.
FRAMES_AT_ONCE = 32
# In a second. Clients send a ping in some seconds, and messages in a few large pieces, if in pieces at all.
CONTROL_FRAMES, SMALL_FRAGMENTS = 50, 1000
SMALL_BYTES = 1024
# Bytes that are read from a refused client, so that it learns why. They are read slowly: without a pause the client
# could keep the loop busy; a client that is cut off early comes back with a handshake, which costs more.
DROPPED_BYTES = 16 << 20
DROP_PAUSE_SECONDS = 0.05
# For the rest of what was sent to a client that reads, and to one that has not.
CLOSE_SECONDS = 10.0
STUCK_SECONDS = 0.5


class FrameCount:
    """Frames that are no message, of one connection."""

    def __init__(self) -> None:
        self._second = 0
        self._control = self._fragments = 0

    def is_exceeded(self, event: events.Event, now: float) -> bool:
        """Count an event; whether there were too many in this second."""
        if int(now) != self._second:
            self._second = int(now)
            self._control = self._fragments = 0
        if isinstance(event, events.Ping | events.Pong):
            self._control += 1
        elif isinstance(event, events.TextMessage | events.BytesMessage):
            ends_no_message = event.frame_finished and not event.message_finished
            self._fragments += ends_no_message and len(event.data) < SMALL_BYTES
        return self._control > CONTROL_FRAMES or self._fragments > SMALL_FRAGMENTS


class SocketProtocol(WSProtocol):
    """One connection. `read_paused`: a complete message waits for the application."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._frames = FrameCount()
        self._next_slice: Handle | None = None
        self._drops = False  # what comes is not parsed any more
        self._dropped = 0

    def handle_connect(self, event: events.Request) -> None:
        super().handle_connect(event)
        self.transport.pause_reading()

    def start_keepalive(self) -> None:
        """Begin with the open connection, as the handshake is complete."""
        super().start_keepalive()
        self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if not self._drops:
            self._receive(data)
            return
        self._dropped += len(data)
        if self._dropped > DROPPED_BYTES:
            self.transport.abort()
            return
        self.transport.pause_reading()
        self.loop.call_later(DROP_PAUSE_SECONDS, self._read_on)

    def handle_events(self) -> None:
        """Handle some of what has come. Nothing is read until the rest is handled, too."""
        if self._next_slice is not None:
            self._next_slice.cancel()
            self._next_slice = None
        found = self.conn.events()
        for _ in range(FRAMES_AT_ONCE):
            if (event := next(found, None)) is None:
                if self.handshake_complete:
                    self.transport.resume_reading()
                return
            self._handle_event(event)
            if self._drops or self.read_paused or self.transport.is_closing():
                return
        self.transport.pause_reading()
        self._handle_soon()

    async def receive(self) -> WebSocketEvent:
        message = await self.queue.get()
        if self.read_paused and self.queue.empty():
            self.read_paused = False
            self._handle_soon()
        return message

    def handle_ping(self, event: events.Ping) -> None:
        if self.writable.is_set() and not self.transport.is_closing():
            super().handle_ping(event)

    def handle_message(self, event: events.TextMessage | events.BytesMessage) -> None:
        try:
            self.buffer.extend(event)
        except FrameTooLargeError:
            self._refuse(TOO_LARGE, f"A message has at most {self.config.ws_max_size} bytes.")
            return
        if event.message_finished:
            self.queue.put_nowait(self.buffer.to_message())
            self.buffer.clear()
            self.read_paused = True
            self.transport.pause_reading()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._abort_later()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._abort_later()

    def shutdown(self) -> None:
        """Begin the end of the connection. Never raises: the server's stop would end with it."""
        try:
            super().shutdown()
        except LocalProtocolError:  # it ends already, or is being refused
            self.transport.close()

    def _receive(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except UnicodeError:  # in a header of the handshake
            self.transport.write(self.conn.send(events.RejectConnection()))
            self.transport.close()

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def _handle_soon(self) -> None:
        if self._next_slice is None:
            self._next_slice = handle_next_turn(self.loop, self.transport, self.handle_events)

    def _handle_event(self, event: events.Event) -> None:
        if self._frames.is_exceeded(event, self.loop.time()):
            self._refuse(TOO_MANY, "Too many frames without a message.")
            self._drops = True
            self.transport.resume_reading()
        elif isinstance(event, events.CloseConnection):
            self.handle_close(event)
        elif self.close_sent:
            return
        elif isinstance(event, events.TextMessage | events.BytesMessage):
            self.handle_message(event)
        elif isinstance(event, events.Ping):
            self.handle_ping(event)
        elif isinstance(event, events.Pong):
            self.handle_pong(event)
        elif isinstance(event, events.Request):
            self.handle_connect(event)

    def _refuse(self, code: int, reason: str) -> None:
        if self.close_sent:
            return
        self.close_sent = True
        self.buffer.clear()
        self.stop_keepalive()
        gone: Any = {"type": "websocket.disconnect", "code": code, "reason": reason}
        self.queue.put_nowait(gone)
        if self.transport.is_closing():
            return
        self.transport.write(self.conn.send(wsproto.events.CloseConnection(code=code, reason=reason)))
        # With a timer set, the connection is not closed at the application's end.
        self.close_timer = self.loop.call_later(CLOSE_SECONDS, self.transport.close)

    def _abort_later(self) -> None:
        if not self.disconnected:
            seconds = CLOSE_SECONDS if self.writable.is_set() else STUCK_SECONDS
            self.loop.call_later(seconds, self._abort)

    def _abort(self) -> None:
        if not self.disconnected:
            self.transport.abort()
