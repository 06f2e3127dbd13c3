"""The push service of `benchmarks.push`: a process of its own, which prints its port and answers 201 after 50 ms."""

from __future__ import annotations

import asyncio
import re
from typing import Any

ANSWER_SECONDS = 0.05
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Protocol(asyncio.Protocol):
    """One answer for each request, ANSWER_SECONDS after its last byte."""

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
            asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._answer)

    def _answer(self) -> None:
        self.transport.write(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Protocol, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
