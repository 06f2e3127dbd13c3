"""A WebSocket through the edge: a server that echoes, and a client over a socket that is connected already."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Message, Request, TextMessage


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        session = WSConnection(ConnectionType.SERVER)
        while data := self.request.recv(65536):
            session.receive_data(data)
            for event in session.events():
                if isinstance(event, Request):
                    self.request.sendall(session.send(AcceptConnection()))
                elif isinstance(event, TextMessage):
                    self.request.sendall(session.send(Message(f"echo {event.data}")))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextmanager
def open_echo() -> Iterator[str]:
    """Yields its host and port."""
    with _Server(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


class WebSocket:
    """The client's end; the handshake is over once it is made."""

    def __init__(self, connection: socket.socket, host: str) -> None:
        self._connection = connection
        self._session = WSConnection(ConnectionType.CLIENT)
        connection.sendall(self._session.send(Request(host=host, target="/")))
        assert isinstance(self._next(), AcceptConnection)

    def ask(self, text: str) -> str:
        """Send a message, and receive one."""
        self._connection.sendall(self._session.send(Message(text)))
        answer = self._next()
        assert isinstance(answer, TextMessage)
        return str(answer.data)

    def _next(self) -> object:
        while True:
            for event in self._session.events():
                return event
            data = self._connection.recv(65536)
            assert data, "the connection was cut"
            self._session.receive_data(data)
