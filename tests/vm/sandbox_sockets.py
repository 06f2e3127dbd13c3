"""WebSockets at the address of a sandbox of an instance, through the edge."""

from __future__ import annotations

import socket
import struct
from typing import Any
from urllib.parse import urlsplit

from tests.sandboxes.sockets.client import Closed, Refused, WebSocketClient
from tests.vm.client import until


def connect(sandbox: dict[str, Any], token: str) -> WebSocketClient:
    """Through the edge; the socket has been accepted."""
    url = urlsplit(sandbox["url"])
    client = WebSocketClient(
        (str(url.hostname), int(url.port or 80)), f"{url.path}/ws?token={token}", host=f"{url.hostname}:{url.port}"
    )
    client.expect("connected")
    return client


def connect_patiently(sandbox: dict[str, Any], token: str) -> WebSocketClient:
    """While streams is started again it cannot be reached."""

    def tried() -> WebSocketClient | None:
        try:
            return connect(sandbox, token)
        except (Refused, Closed, OSError):
            return None

    found: WebSocketClient = until(tried, 60, "a socket is accepted")
    return found


def cut(client: WebSocketClient) -> None:
    """As a connection that is lost: the other side gets a reset at most, and no close."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()
