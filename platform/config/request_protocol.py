"""uvicorn's HTTP protocol (h11), which by itself parses all that has come in one step: of a body in chunks of one byte
a quarter of a second, in which no other client is served. Here a step has some pieces, and later turns of the loop have
the rest.

Relies on internals of uvicorn, of which one minor version is allowed (pyproject.toml).
"""

from __future__ import annotations

from asyncio import Handle
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from common.trailers import TRAILERS
from config.next_turn import handle_next_turn

# Pieces of a body in one turn of the loop: some tenths of a millisecond.
PIECES_AT_ONCE = 64


class SlicedConnection(h11.Connection):
    """A connection that gives `left` pieces of a body, and then none, as if no more had come."""

    left = PIECES_AT_ONCE
    takes_trailers = False

    def __init__(self, role: type[h11.SERVER]) -> None:
        super().__init__(role)
        self.trailers: list[tuple[bytes, bytes]] = []  # of the response that is being sent

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]  # without its overloads
        """Send an event, the last one with the response's trailers if it has chunks."""
        if isinstance(event, h11.Response):
            self.takes_trailers = self._is_chunked(event)
        elif isinstance(event, h11.EndOfMessage) and self.trailers and self.takes_trailers:
            event = h11.EndOfMessage(headers=self.trailers)
        return super().send(event)

    def _is_chunked(self, event: h11.Response) -> bool:
        """Return whether a response is one that h11 sends in chunks."""
        has_length = any(name == b"content-length" for name, _ in event.headers)
        has_body = self._request_method != b"HEAD" and event.status_code not in (204, 304)
        return has_body and not has_length and (self.their_http_version or b"") >= b"1.1"

    def next_event(self) -> Any:
        if not self.left:
            return h11.NEED_DATA
        event = super().next_event()
        self.left -= isinstance(event, h11.Data)
        return event


class RequestProtocol(H11Protocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = self._sliced = SlicedConnection(h11.SERVER)
        self._next_slice: Handle | None = None
        self._application, self.app = self.app, self._serve

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        self._sliced.trailers = scope[TRAILERS] = []
        await self._application(scope, receive, send)

    def handle_events(self) -> None:
        """Handle some of what has come. Nothing is read until the rest is handled, too."""
        waited, self._next_slice = self._next_slice, None
        if waited is not None:
            waited.cancel()
        self._sliced.left = PIECES_AT_ONCE
        super().handle_events()
        # After an upgrade the other protocol decides what is read.
        if self.transport.is_closing() or self.transport.get_protocol() is not self:
            return
        if not self._sliced.left:
            self.transport.pause_reading()
            self._next_slice = handle_next_turn(self.loop, self.transport, self._handle_slice)
        elif waited is not None and not self.flow.read_paused:
            self.transport.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request; the rest of one that has been answered before it was complete just ends here."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def shutdown(self) -> None:
        """Begin the end of the connection. Never raises: the server's stop would end with it."""
        try:
            super().shutdown()
        except h11.LocalProtocolError:  # an answer that broke, of which the client has not read all
            self.transport.close()

    def _handle_slice(self) -> None:
        if not self.transport.is_closing():
            self.handle_events()
