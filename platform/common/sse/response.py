"""The response of an event stream. For asynchronous views."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

from django.http import HttpRequest, StreamingHttpResponse

from common.connections import release_thread
from common.sse.frames import EventId, parse_id
from common.sse.runtime import Reader, require_capacity, shared_runtime


def event_stream(reader: Reader) -> StreamingHttpResponse:
    """Open a stream. Raise RateLimited. An open stream holds neither a thread nor a database connection."""
    require_capacity(reader)
    return stream_response(_body(reader))


def stream_response(body: AsyncIterator[bytes]) -> StreamingHttpResponse:
    """Return a response with the headers of an event stream: nothing on the way keeps, changes or collects it."""
    response = StreamingHttpResponse(body, content_type="text/event-stream")
    response["Cache-Control"] = "no-cache, no-transform"
    response["X-Accel-Buffering"] = "no"
    return response


def last_event_id(request: HttpRequest) -> EventId | None:
    """Return the last id that a reconnecting client got; None for a new client. A malformed id belongs to no epoch."""
    text = request.headers.get("Last-Event-ID")
    return (parse_id(text) or EventId("unknown", 0)) if text else None


async def _body(reader: Reader) -> AsyncIterator[bytes]:
    release_thread()  # the first place that runs after the last middleware
    async with shared_runtime() as runtime, aclosing(runtime.read(reader)) as body:  # type: ignore[type-var]
        async for text in body:
            yield text
