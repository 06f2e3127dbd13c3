"""Calls of the file routes, as the streams process serves them."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable
from typing import Any

from asgiref.sync import async_to_sync

from tests.callers import Caller
from tests.described import DescribedAsyncClient

FILES = "/workspace/the-box/overlay/files"
LISTING = "/workspace/the-box/overlay"
RAW = "application/octet-stream"


def run(api: Caller, cmd: Any) -> dict[str, Any]:
    answer = api.post("/workspace/the-box/exec", {"cmd": cmd})
    assert answer.status_code == 200, answer.content
    return answer.json()


def ask(api: Caller, method: str, path: str, body: Any = b"", kind: str = "application/json", **headers: str) -> Any:
    """Through ASGI, as the streams process serves it. Returns the response and its whole body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {**api.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}

    async def call() -> Any:
        client = DescribedAsyncClient()
        request: Awaitable[Any] = client.generic(method, path, data, content_type=kind, headers=sent)
        response = await asyncio.wait_for(request, 20)
        if not response.streaming:
            return response, response.content
        return response, b"".join([chunk async for chunk in response.streaming_content])

    return async_to_sync(call)()


def write(api: Caller, path: str, data: bytes) -> Any:
    return ask(api, "POST", FILES, {"path": path, "content": base64.b64encode(data).decode()})[0]


def read(api: Caller, path: str) -> bytes:
    answer, body = ask(api, "GET", f"{FILES}?path={path}")
    assert answer.status_code == 200, body
    shown = json.loads(body)
    assert (shown["success"], shown["path"], shown["encoding"]) == (True, path, "base64")
    data = base64.b64decode(shown["content"], validate=True)
    assert shown["size"] == len(data)
    return data
