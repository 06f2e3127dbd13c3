"""Streams of any length from a guest, for the holder of a token."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

from common.async_threads import in_pool_thread
from vmbackend.backend import guest_pool
from vmbackend.guest.session import GuestAddress, GuestSession
from workspaces import last_used
from workspaces.guests import call_errors, next_part

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
        while (part := await next_part(parts, address.machine_id, use)) is not None:
            yield part
