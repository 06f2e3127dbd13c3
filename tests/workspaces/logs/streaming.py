"""Event stream routes through Django's ASGI handler, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from asgiref.sync import async_to_sync, sync_to_async
from django.test import AsyncClient

from tests.callers import Caller
from tests.common.sse.reading import Client

BOX = "/workspace/the-box"
BOOT, CMD, STATS = f"{BOX}/logs/stream/boot", f"{BOX}/logs/stream/cmd", f"{BOX}/stats/stream"
WORKLOADS, WEB = f"{BOX}/workloads/stats/stream", f"{BOX}/workloads/web/logs/stream"


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A test's body on a loop; its synchronous calls run in the test's own thread."""
    async_to_sync(work)()


async def call(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A synchronous call of the API while streams are open."""
    return await sync_to_async(work)(*args, **kwargs)


@asynccontextmanager
async def opened(api: Caller, path: str, **headers: str) -> AsyncIterator[Client]:
    """A client of an event stream route."""
    sent = {**api.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
    answer: Any = await AsyncClient().get(path, headers=sent)
    assert answer.status_code == 200, answer.content
    assert answer["Content-Type"] == "text/event-stream"
    client = Client(aiter(answer.streaming_content))
    task = asyncio.ensure_future(client.read())
    try:
        first = await client.frame()
        assert first is not None
        assert first.text == "retry: 2000"
        yield client
    finally:
        task.cancel()
        await asyncio.wait([task])
