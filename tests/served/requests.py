"""Requests as bytes, which no client library would send."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.vm.instances import TestInstance

Address = str | tuple[str, int]


def addresses(served: TestInstance) -> dict[str, Address]:
    """Where the edge and the servers behind it listen."""
    parts, run = urlsplit(served.settings.base_url), Path(served.instance.run_dir)
    return {
        "edge": (str(parts.hostname), int(parts.port or 0)),
        "api": str(run / "api.sock"),
        "streams": str(run / "streams.sock"),
    }


def connected(address: Address) -> socket.socket:
    made = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    made.settimeout(30)
    made.connect(address)
    return made


def head(method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """The request line and headers, without the empty line."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n"


def cut_off(address: Address, data: bytes) -> tuple[int, Any]:
    """Send these bytes and no more, and the end of the connection; status and body of what still comes back.

    Returns once the server has closed the connection, and so has made of the request what it makes of it. The status is
    0 where nothing comes back.
    """
    with connected(address) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        got = b""
        try:
            while more := connection.recv(65536):
                got += more
        except ConnectionResetError:
            pass
    if not got:
        return 0, None
    first, _, body = got.partition(b"\r\n\r\n")
    start = body.find(b"{")
    return int(first.split()[1]), json.loads(body[start : body.rfind(b"}") + 1]) if start >= 0 else None
