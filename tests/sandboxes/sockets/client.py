"""A WebSocket client on wsproto, over a Unix socket or TCP: nothing is done by itself but pongs."""

from __future__ import annotations

import json
import socket
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.events import Message as Sent

SECONDS = 60


class Refused(Exception):
    """The handshake was answered by a response."""

    def __init__(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        super().__init__(status, body)
        self.status, self.body, self.headers = status, body, headers


class Closed(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code, self.reason = code, reason


class WebSocketClient:
    """Output of terminals is collected by id in `output` while other messages are waited for."""

    def __init__(self, address: Path | tuple[str, int], target: str, host: str = "testserver") -> None:
        is_tcp = isinstance(address, tuple)
        self.socket = socket.socket(socket.AF_INET if is_tcp else socket.AF_UNIX)
        self.socket.settimeout(SECONDS)
        self.socket.connect(address if is_tcp else str(address))
        self.output: dict[int, bytearray] = {}
        self.messages: deque[dict[str, Any]] = deque()
        self._parts: list[Any] = []
        self._connection = WSConnection(ConnectionType.CLIENT)
        self.socket.sendall(self._connection.send(Request(host=host, target=target)))
        self._shake_hands()

    def __enter__(self) -> WebSocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, **message: Any) -> None:
        self.send_raw(json.dumps(message))

    def send_raw(self, data: str | bytes) -> None:
        self.socket.sendall(self._connection.send(Sent(data=data)))

    def ask(self, wanted: str, **message: Any) -> dict[str, Any]:
        """Send and return the next message of that type."""
        self.send(**message)
        return self.expect(wanted)

    def expect(self, wanted: str) -> dict[str, Any]:
        """The next message of that type; others are kept."""
        while True:
            for found in self.messages:
                if found["type"] == wanted:
                    self.messages.remove(found)
                    return found
            self.receive()

    def read_until(self, id: int, wanted: bytes) -> bytes:
        """The terminal's output so far, once it has what is wanted."""
        while wanted not in self.output.setdefault(id, bytearray()):
            self.receive()
        return bytes(self.output[id])

    def receive(self) -> None:
        """Read once from the network. Raises Closed."""
        data = self.socket.recv(65536)
        self._connection.receive_data(data or None)
        self._take_events()

    def _take_events(self) -> None:
        for event in self._connection.events():
            if isinstance(event, TextMessage | BytesMessage):
                self._parts.append(event.data)
                if event.message_finished:
                    self._add_message(self._parts[0][:0].join(self._parts))
                    self._parts.clear()
            elif isinstance(event, Ping):
                self.socket.sendall(self._connection.send(event.response()))
            elif isinstance(event, CloseConnection):
                raise Closed(event.code, event.reason or "")

    def wait_closed(self) -> Closed:
        """Read to the end."""
        try:
            while True:
                self.receive()
        except Closed as closed:
            return closed

    def wait_gone(self) -> None:
        """Read to the end, whether it is closed or its process was killed."""
        with suppress(Closed, ConnectionError):
            while True:
                self.receive()

    def _add_message(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self.messages.append(json.loads(message))
        else:
            self.output.setdefault(message[0], bytearray()).extend(message[1:])

    def _shake_hands(self) -> None:
        status, body, headers = 0, b"", {}
        while True:
            data = self.socket.recv(65536)
            self._connection.receive_data(data or None)
            for event in self._connection.events():
                if isinstance(event, AcceptConnection):
                    self._take_events()  # the first message may have come with it
                    return
                if isinstance(event, RejectConnection):
                    status = event.status_code
                    headers = {name.decode().lower(): value.decode() for name, value in event.headers}
                elif isinstance(event, RejectData):
                    body += event.data
                    if event.body_finished:
                        raise Refused(status, body, headers)
