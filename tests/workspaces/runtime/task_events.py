"""Requests for the events of tasks, and reading them."""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.asgi import Request
from tests.workspaces.runtime.conftest import Holder


@dataclass
class Event:
    name: str
    id: str
    data: Any


@dataclass
class Told:
    """The events of a stream, and the outputs that they have."""

    events: list[Event] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]

    def output(self, name: str = "stdout") -> bytes:
        return b"".join(b64decode(event.data["data"]) for event in self.events if event.name == name)

    @property
    def gone(self) -> int:
        return sum(event.data["bytes"] for event in self.events if event.name == "gap")

    @property
    def end(self) -> Any:
        assert self.names[-1] == "exit", self.names[-5:]
        return self.events[-1].data


def told(body: bytes) -> Told:
    """Return what a body has, up to its last whole event; each has the three lines that existing clients read."""
    found = Told()
    for text in body.decode().split("\n\n")[:-1]:
        if text.startswith(":"):
            continue
        name, id, data = text.split("\n")
        assert name.startswith("event: ")
        assert id.startswith("id: ")
        assert data.startswith("data: {")
        found.events.append(Event(name[7:], id[4:], json.loads(data[6:])))
    return found


def start_stream(holder: Holder, cmd: Any, **more: Any) -> Request:
    return Request("/r/exec/stream", bearer(holder), "POST", {"cmd": cmd, **more})


def follow_stream(holder: Holder, task: str, *, last: str = "", offset: int | None = None) -> Request:
    query = f"task_id={task}" + ("" if offset is None else f"&offset={offset}")
    headers = bearer(holder) | ({"Last-Event-ID": last} if last else {})
    return Request(f"/r/exec/stream?{query}", headers)


def bearer(holder: Holder) -> dict[str, str]:
    return {"Authorization": f"Bearer {holder.token}"}


def read_stream(request: Request) -> Told:
    """The events of a stream that ends."""
    asyncio.run(asyncio.wait_for(request.run(), 60))
    assert request.status == 200, request.body
    return told(request.body)


async def until_told(request: Request, condition: Callable[[Told], bool]) -> Told:
    """The events of a stream that runs, once they are what is waited for."""
    for _ in range(3000):
        if condition(found := told(request.body)):
            return found
        await asyncio.sleep(0.02)
    raise AssertionError(request.body[-500:])
