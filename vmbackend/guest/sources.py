"""Closing what a session reads from as soon as its reader has enough."""

from __future__ import annotations

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
