"""Calls of a protocol in a later turn of the loop."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Handle, Transport
from collections.abc import Callable


def handle_next_turn(loop: AbstractEventLoop, transport: Transport, handle: Callable[[], None]) -> Handle:
    """Call `handle` in the loop's next turn. If it raises, the connection ends, as asyncio lets it in `data_received`:
    one that is paused would stay for ever.
    """

    def handle_or_abort() -> None:
        try:
            handle()
        except Exception:
            transport.abort()
            raise

    return loop.call_soon(handle_or_abort)
