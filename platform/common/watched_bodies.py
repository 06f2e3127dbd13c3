"""Bodies that may be on their way for long, in either direction: they end within a second of what authorized them.

A download is broken off, also if its client does not read. An upload is refused, and what it was to replace stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from common.errors import Unauthorized
from common.sse.open_grants import RevocationCheck
from common.sse.watched_grants import watched_grant


@dataclass(frozen=True, slots=True)
class BodyGrant:
    """The grant that authorized a request. `revoked` checks `grant` while a body is on its way."""

    grant: Hashable
    revoked: RevocationCheck


async def granted_chunks(chunks: Any, body: BodyGrant) -> AsyncIterator[bytes]:
    """Yield the chunks of a response's body while its grant holds.

    Then the task that sends them is cancelled, also in the middle of a chunk. Django takes that as it takes a client
    that has left, and the server closes the connection of a response that is not complete.
    """
    end = _Ending()
    async with aclosing(chunks), watched_grant(body.grant, body.revoked, end):
        async for chunk in chunks:
            yield chunk


@asynccontextmanager
async def while_granted(body: BodyGrant) -> AsyncIterator[None]:
    """Cancel what is done within the context when the grant is revoked. Raise Unauthorized then."""
    end = _Ending()
    try:
        async with watched_grant(body.grant, body.revoked, end):
            yield
    except asyncio.CancelledError:
        if not end.reason or end.is_cancelled_elsewhere():
            raise
        raise Unauthorized(f"The request ends: {end.reason}.") from None


@asynccontextmanager
async def granted_body(chunks: AsyncIterator[bytes], body: BodyGrant) -> AsyncIterator[AsyncIterator[bytes]]:
    """Give the chunks of a request's body. Once the grant is revoked, the next one raises Unauthorized, also if it is
    being waited for: what reads them puts in order what it has begun, which `while_granted` would cut off.
    """
    reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def end(why: str) -> None:
        if not reason.done():
            reason.set_result(why)

    async with watched_grant(body.grant, body.revoked, end):
        yield _until_revoked(chunks, reason)


async def _until_revoked(chunks: AsyncIterator[bytes], reason: asyncio.Future[str]) -> AsyncIterator[bytes]:
    while True:
        chunk: asyncio.Future[bytes | None] = asyncio.ensure_future(anext(chunks, None))
        try:
            waited: list[asyncio.Future[Any]] = [chunk, reason]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not chunk.done():
                chunk.cancel()
        if reason.done():
            await asyncio.gather(chunk, return_exceptions=True)  # its error has no other reader
            raise Unauthorized(f"The request ends: {reason.result()}.")
        if (found := chunk.result()) is None:
            return
        yield found


class _Ending:
    """The end of a task: cancels the task that has made it, once, for a reason."""

    def __init__(self) -> None:
        self.reason = ""
        self._task = asyncio.current_task()

    def __call__(self, reason: str) -> None:
        if not self.reason and self._task is not None:
            self.reason = reason
            self._task.cancel()

    def is_cancelled_elsewhere(self) -> bool:
        """Return whether someone else has cancelled the task, too; the cancellation for the reason is taken back."""
        return self._task is not None and self._task.uncancel() > 0
