"""Streams of any length from a guest, for the holder of a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

from common.async_threads import in_pool_thread
from vmbackend.backend import guest_pool
from vmbackend.guest.session import GuestAddress, GuestSession
from workspaces import last_used
from workspaces.guests import LOOK_SECONDS, call_errors, find_machine_end

T = TypeVar("T")


async def stream_guest(
    address: GuestAddress, read: Callable[[GuestSession], AsyncIterator[T]]
) -> AsyncGenerator[T, None]:
    """Yield what `read` yields, for any length of time. The workspace counts as in use meanwhile.

    It ends with the machine, within LOOK_SECONDS. Raises the errors of `call_errors`.
    """
    await in_pool_thread(last_used.record_use, address.machine_id)
    use = last_used.TransferUse(address.machine_id)
    parts = guest_pool().astream(address, read)
    async with call_errors(address), aclosing(parts):
        while (part := await _next_part(parts, use, address.machine_id)) is not None:
            yield part


async def _next_part(parts: AsyncGenerator[T, None], use: last_used.TransferUse, machine_id: str) -> T | None:
    """Return the next part, None after the last. Raise why the machine has ended."""
    pulling: asyncio.Future[T | None] = asyncio.ensure_future(anext(parts, None))
    try:
        while not (await asyncio.wait({pulling}, timeout=LOOK_SECONDS))[0]:
            await use.arecord_chunk()
            if (reason := await in_pool_thread(find_machine_end, machine_id)) is not None:
                raise reason
    finally:
        if not pulling.done():
            pulling.cancel()
            await asyncio.wait({pulling})
    return pulling.result()
