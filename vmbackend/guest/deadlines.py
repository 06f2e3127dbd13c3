"""The deadline of a call, which does not run while the call waits for one of the guest's places for commands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar

from vmbackend.errors import DeadlineExceeded, GuestBusy, GuestUnreachable

# For a place: those who have them may run commands of ten minutes.
PLACE_SECONDS = 60.0
_deadline: ContextVar[asyncio.Timeout | None] = ContextVar("deadline", default=None)


@asynccontextmanager
async def call_deadline(timeout: float | None) -> AsyncIterator[None]:
    """Limit the block to `timeout` seconds. Raise DeadlineExceeded, or GuestUnreachable if a part of the call took too
    long.
    """
    try:
        async with asyncio.timeout(timeout) as scope:
            token = _deadline.set(scope)
            try:
                yield
            finally:
                _deadline.reset(token)
    except TimeoutError as error:
        if not scope.expired():
            raise GuestUnreachable("The machine's control channel does not answer.") from error
        raise DeadlineExceeded("The machine did not answer in time.") from error


async def acquire_place(places: asyncio.Semaphore) -> None:
    """Take a place; the caller releases it. Raise GuestBusy after PLACE_SECONDS."""
    if not places.locked():
        await places.acquire()
        return
    try:
        async with _stopped_clock(), asyncio.timeout(PLACE_SECONDS):
            await places.acquire()
    except TimeoutError as error:
        raise GuestBusy("Too many commands run in this machine.") from error


@asynccontextmanager
async def _stopped_clock() -> AsyncIterator[None]:
    """Move the call's deadline by the time that the block takes. If several blocks run at once, only the first
    counts.
    """
    loop, scope = asyncio.get_running_loop(), _deadline.get()
    until = None if scope is None or scope.expired() else scope.when()
    if scope is None or until is None:
        yield
        return
    left = until - loop.time()
    with suppress(RuntimeError):  # the call has ended, and this is what it left to be done
        scope.reschedule(None)
    try:
        yield
    finally:
        with suppress(RuntimeError):
            scope.reschedule(loop.time() + left)
