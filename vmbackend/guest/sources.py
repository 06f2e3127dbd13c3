"""Sources that a session reads from: closed as soon as their reader has enough, or on another loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def closing_source(source: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Do what `contextlib.aclosing` does, for iterators of which some have nothing to close.

    A generator that is only left keeps its file open until the garbage collector comes.
    """
    try:
        yield source
    finally:
        if (close := getattr(source, "aclose", None)) is not None:
            await close()


async def pulled_from(loop: asyncio.AbstractEventLoop, chunks: AsyncIterator[T]) -> AsyncIterator[T]:
    """Yield what another loop's iterator yields; each is asked for when the one before it was taken."""

    async def pull() -> T | None:
        return await anext(chunks, None)

    while (chunk := await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(pull(), loop))) is not None:
        yield chunk
