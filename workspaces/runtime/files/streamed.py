"""A tree of any size as NDJSON: lines are sent as the guest finds entries, in constant memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from common.responses import as_domain_error, error_body
from vmbackend.guest.session import GuestSession
from workspaces.files.paths import displayed_path
from workspaces.guests import guest_errors
from workspaces.runtime.files.entries import entry_lines, json_line
from workspaces.runtime.files.trees import tree_batches
from workspaces.runtime.files.wanted import shown_of, wanted_tree

NDJSON = "application/x-ndjson"


class StreamFailed(Exception):
    """Sign that a stream ends with an error. The response is cut off: a client that passes over the error's line
    notices that it is not whole.
    """


def tree_reader(query: dict[str, Any]) -> Callable[[GuestSession], AsyncIterator[bytes]]:
    """Return a function that yields the lines of what a query asks for; the first piece has entries, or is the end."""

    async def read(session: GuestSession) -> AsyncIterator[bytes]:
        wanted = await wanted_tree(session, query)
        shown = shown_of(wanted.path, query)
        waiting, count = json_line({"event": "start", "path": displayed_path(wanted.path)}), 0
        async with aclosing(tree_batches(session, wanted)) as batches:
            async for batch in batches:
                yield waiting + await asyncio.to_thread(entry_lines, batch, shown)
                waiting, count = b"", count + len(batch.entries)
        yield waiting + json_line({"event": "done", "count": count, "truncated": False})

    return read


async def with_failure(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks, and an error as a line. Raise StreamFailed after it."""
    async with aclosing(chunks):  # type: ignore[type-var]
        try:
            with guest_errors():
                async for chunk in chunks:
                    yield chunk
            return
        except Exception as exc:
            error = as_domain_error(exc)
    yield json_line({"event": "error", **error_body(error)})
    raise StreamFailed(error.message)
