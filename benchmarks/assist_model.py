"""A model that answers at once, or never (where the prompt says so), and the same proxy without counters and ledger.

python -m benchmarks.assist_model           prints its address, and serves until its standard input ends
uvicorn benchmarks.assist_model:proxy       asks the model of BENCH_MODEL_URL for each request
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from assist.generation import answer_generate, first_question
from assist.model.endpoint import Endpoint
from assist.routes import GENERATE
from assist.spent import Spent

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


async def proxy(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    sent = json.loads((await receive())["body"])
    url = os.environ["BENCH_MODEL_URL"]
    fields = await answer_generate(endpoint(url), GENERATE, first_question(GENERATE, sent), Spent())
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(fields).encode()})


if __name__ == "__main__":
    asyncio.run(serve())
