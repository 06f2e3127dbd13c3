"""WSGI and ASGI applications that respond with what they received; they stand for api and streams behind a real edge.

Each request's id is noted in a file, so that a test sees what was carried out twice.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from config.drain_request_body import DrainRequestBody

LIMIT = 10 * 1024 * 1024
# Most requests are in flight when something dies.
SECONDS = 0.002


def executed_file() -> str:
    return f"{os.environ['STATE']}/executed"


def respond(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body = environ["wsgi.input"].read(length)
    if len(body) < length:
        start_response("400 Bad Request", [("Content-Length", "0")])
        return [b""]
    names = {key[5:].replace("_", "-").lower(): value for key, value in environ.items() if key.startswith("HTTP_")}
    content = _carry_out(names, body)
    time.sleep(SECONDS)
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
    return [content]


application = DrainRequestBody(respond, LIMIT)


async def asgi(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message.get("body", b""), message.get("more_body", False)
    content = _carry_out({name.decode(): value.decode() for name, value in scope["headers"]}, body)
    await asyncio.sleep(SECONDS)
    headers = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _carry_out(headers: Mapping[str, str], body: bytes) -> bytes:
    request_id = headers.get("x-request-id", "")
    note = os.open(executed_file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(note, f"{request_id}\n".encode())
    os.close(note)
    given = {"client": headers.get("x-client-id", ""), "id": request_id, "body": body.decode(), "pid": os.getpid()}
    return json.dumps(given).encode()
