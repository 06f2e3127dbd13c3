"""Requests of commands with streamed output, and reading their events."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.asgi import Request
from tests.callers import Caller
from tests.common.sse.reading import parse

BOX = "/workspace/the-box"


def streamed(api: Caller, cmd: Any, kind: type[Request] = Request, **more: Any) -> Any:
    return kind(f"{BOX}/exec", api.headers, "POST", {"cmd": cmd, "stream": True, **more})


def events_in(body: bytes) -> list[tuple[str, Any]]:
    found = [parse(text) for text in body.decode().split("\n\n") if text]
    return [(event.kind, event.data) for event in found if event.kind]


def text_of(events: list[tuple[str, Any]], name: str) -> str:
    return "".join(data["data"] for kind, data in events if kind == name)


def run(api: Caller, cmd: Any, **more: Any) -> list[tuple[str, Any]]:
    request = streamed(api, cmd, **more)
    asyncio.run(asyncio.wait_for(request.run(), 60))
    assert request.status == 200, request.body
    return events_in(request.body)


def refused(request: Request) -> tuple[int, str]:
    asyncio.run(asyncio.wait_for(request.run(), 60))
    return request.status, request.json()["code"]


KEY = "key-of-this-input"


async def put(api: Caller, offset: int, data: bytes, *, eof: bool = False, key: str = KEY) -> Request:
    """Send a part of the input of a command that runs or is about to."""
    target = f"{BOX}/exec/{key}/input?offset={offset}{'&eof=true' if eof else ''}"
    while True:
        request = Request(target, api.headers, "POST", data)
        await asyncio.wait_for(request.run(), 60)
        if request.status != 404:
            return request
