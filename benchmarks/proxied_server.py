"""The server inside a guest that benchmarks/proxy.py asks: so many bytes, a body that it counts, and an echo by
WebSocket.

It runs there by itself, with Python's own modules alone.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLOCK = b"x" * (1 << 16)


class Handler(BaseHTTPRequestHandler):
    """`GET /N` answers N bytes, `PUT` the number of bytes that came; an upgrade echoes short messages."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        if self.headers.get("Upgrade", "").lower() == "websocket":
            self._echo()
            return
        left = int(self.path.strip("/"))
        self._begin(left)
        while left > 0:
            left -= self.wfile.write(BLOCK[: min(left, len(BLOCK))])

    def do_PUT(self) -> None:
        left = size = int(self.headers["Content-Length"])
        while left > 0:
            left -= len(self.rfile.read(min(left, len(BLOCK))))
        answer = str(size).encode()
        self._begin(len(answer))
        self.wfile.write(answer)

    def _begin(self, size: int) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def _echo(self) -> None:
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.wfile.flush()
        self.close_connection = True
        while len(head := self.rfile.read(2)) == 2 and head[0] & 15 != 8:
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[place % 4] for place, byte in enumerate(self.rfile.read(head[1] & 127)))
            self.wfile.write(bytes([head[0], len(data)]) + data)
            self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing: a line of each request would be measured, too."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
