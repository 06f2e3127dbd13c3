"""The receiver of `benchmarks.hooks`: a process of its own, which prints its port."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

HANG = "/hang"
GOOD = "/good"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Protocol(asyncio.Protocol):
    """Answers 204 to each request, to those below /hang nothing. GET responds with the seconds that each body of /good

    took, from its `at`.
    """

    arrived: list[float] = []

    def connection_made(self, transport: Any) -> None:
        self.transport, self.data = transport, b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while b"\r\n\r\n" in self.data:
            head, _, rest = self.data.partition(b"\r\n\r\n")
            found = _LENGTH.search(head)
            length = int(found[1]) if found else 0
            if len(rest) < length:
                return
            self.data = rest[length:]
            self._answer(head, rest[:length])

    def _answer(self, head: bytes, body: bytes) -> None:
        method, path = head.split(b" ", 2)[:2]
        if path.decode().startswith(HANG):
            return
        if method == b"GET":
            found = json.dumps(self.arrived).encode()
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(found), found))
            return
        if path.decode().startswith(GOOD):
            self.arrived.append(time.time() - json.loads(body)["data"]["at"])
        self.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Protocol, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
