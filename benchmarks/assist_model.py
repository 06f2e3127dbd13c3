"""`python -m benchmarks.assist_model`: a model that answers at once, or never (where the prompt says so). Prints its
address, and serves until its standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys

from assist.model.endpoint import Endpoint

NEVER = "without an end"
FIELDS = {"code": "print(1)", "explanation": "It prints.", "suggestions": ["test it"]}
EVENTS = [
    {"choices": [{"delta": {"content": json.dumps(FIELDS)}, "finish_reason": "stop"}]},
    {"choices": [], "usage": {"prompt_tokens": 300, "completion_tokens": 20}},
]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
BODY = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in EVENTS) + b"data: [DONE]\n\n"


def endpoint(url: str) -> Endpoint:
    return Endpoint(url, "model", "", "json_schema", 2048, 5, 60)


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    body = await reader.readexactly(int(length.split(b":")[1]))
    if NEVER.encode() in body:
        await reader.read()
    else:
        writer.write(HEAD + BODY)
        await writer.drain()
    writer.close()


async def serve() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve())
