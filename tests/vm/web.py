"""A workspace with the small web server of `web.c`, and visitors of its public address."""

from __future__ import annotations

import base64
import os
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.vm.client import Api, until
from tests.vm.images import WEB

PORT = 8080


@dataclass(frozen=True)
class Site:
    """`base` is the edge, `domain` the name under which it knows the port."""

    id: str
    ip: str
    base: str
    domain: str
    url: str

    def visit(self, method: str, path: str, **request: Any) -> httpx.Response:
        """As a visitor does: without credentials, by the public name."""
        headers = {"Host": self.domain, **request.pop("headers", {})}
        timeout = request.pop("timeout", 90)
        return httpx.request(method, self.base + path, headers=headers, timeout=timeout, trust_env=False, **request)

    @contextmanager
    def socket(self, *headers: str) -> Iterator[WebSocket]:
        """A WebSocket to the server's `/ws`, opened with these header lines as well."""
        parts = urlsplit(self.base)
        with socket.create_connection((str(parts.hostname), int(parts.port or 80)), timeout=90) as connection:
            yield WebSocket(connection, self.domain, *headers)


class WebSocket:
    """The client's side of a WebSocket: short texts, one frame each."""

    def __init__(self, connection: socket.socket, host: str, *headers: str) -> None:
        self._connection = connection
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET /ws HTTP/1.1", f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket",
            f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", *headers,
        ]  # fmt: skip
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._exactly(1)
        assert head.startswith(b"HTTP/1.1 101"), head

    def echo(self, text: str) -> str:
        """The reply to a text. Raises ConnectionError where the connection ended."""
        data, mask = text.encode(), os.urandom(4)
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        self._connection.sendall(struct.pack("!BB", 0x81, 0x80 | len(data)) + mask + masked)
        _, size = struct.unpack("!BB", self._exactly(2))
        return self._exactly(size).decode()

    def _exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            more = self._connection.recv(size - len(got))
            if not more:
                raise ConnectionError("the other side ended the connection")
            got += more
        return got


def make_site(api: Api, base: str, *, workloads: Sequence[dict[str, Any]] = (), **config: Any) -> Site:
    """A workspace whose port is public; returns when its program answers on it. `workloads`: beside that program."""
    web = {"name": "web", "cmd": ["/bin/web", str(PORT), str(PORT + 1)]}
    made = api.create(WEB, workloads=[web, *workloads], wait_for_init=True, **config)
    item = api.call("POST", f"/workspace/{made['id']}/public-access", 201, json={"port": PORT})["public_port"]
    site = Site(made["id"], made["ip"], base, item["domain"], item["url"])
    until(lambda: site.visit("GET", "/ok").status_code == 200, 30, "the program answers")
    return site
