"""uvicorn's WebSocket protocol (wsproto), with bounds for clients that do not read.

Of uvicorn one minor version is allowed (pyproject.toml), as this overrides its internals:
- A pong is not queued for a client that reads nothing: pings would take memory without a limit.
- After 1009 what the client is still sending is read and dropped for some seconds: a connection that is closed in the
  middle of it would lose the close frame.
- A connection whose client does not take the rest is cut; by itself it would stay for as long as the client does.
"""

from __future__ import annotations

from typing import Any

import wsproto
from uvicorn.protocols.websockets.wsproto_impl import FrameTooLargeError, WSProtocol
from wsproto import events

TOO_LARGE = 1009
# For the rest of what was sent to a client that reads, and to one that has not.
CLOSE_SECONDS = 10.0
STUCK_SECONDS = 0.5


class SocketProtocol(WSProtocol):
    """One connection."""

    def handle_ping(self, event: events.Ping) -> None:
        if self.writable.is_set():
            super().handle_ping(event)

    def handle_message(self, event: events.TextMessage | events.BytesMessage) -> None:
        try:
            self.buffer.extend(event)
        except FrameTooLargeError:
            self._refuse_message()
            return
        if event.message_finished:
            self.queue.put_nowait(self.buffer.to_message())
            self.buffer.clear()
            if not self.read_paused:
                self.read_paused = True
                self.transport.pause_reading()

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self._abort_later()

    async def run_asgi(self) -> None:
        await super().run_asgi()
        self._abort_later()

    def _refuse_message(self) -> None:
        self.close_sent = True
        self.buffer.clear()
        self.stop_keepalive()
        reason = f"A message has at most {self.config.ws_max_size} bytes."
        gone: Any = {"type": "websocket.disconnect", "code": TOO_LARGE, "reason": reason}
        self.queue.put_nowait(gone)
        if self.transport.is_closing():
            return
        self.transport.write(self.conn.send(wsproto.events.CloseConnection(code=TOO_LARGE, reason=reason)))
        # With a timer set, the connection is not closed at the application's end.
        self.close_timer = self.loop.call_later(CLOSE_SECONDS, self.transport.close)

    def _abort_later(self) -> None:
        if not self.disconnected:
            seconds = CLOSE_SECONDS if self.writable.is_set() else STUCK_SECONDS
            self.loop.call_later(seconds, self._abort)

    def _abort(self) -> None:
        if not self.disconnected:
            self.transport.abort()
