"""Commands of a session that the guest's hold runs: one connection for all, opened with the first."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from .buffers import BoundedBuffer
from .commands import TIMED_OUT
from .hold.client import HoldClient, HoldSettings
from .hold.command import CommandStart
from .running import DEADLINE_SLACK, make_result
from .session import ExecResult

# Seconds to reach the hold; what cannot reach it is run by the helper.
SETTINGS = HoldSettings(timeout=10.0)


class HeldRunner:
    """A runner of commands by the kept process. Belongs to the event loop of its session."""

    def __init__(
        self, open_hold: Callable[[HoldSettings], HoldClient], place: Callable[[], AbstractAsyncContextManager[None]]
    ) -> None:
        self._open_hold = open_hold
        self._place = place
        self._client: HoldClient | None = None

    async def run(self, start: CommandStart, timeout: float, max_output: int) -> ExecResult:
        """Run a command to its end, in one of the session's places; times in seconds, `max_output` of each output.

        Raise NotStarted, GuestUnreachable, GuestBusy.
        """
        out, err = BoundedBuffer(max_output), BoundedBuffer(max_output)
        async with self._place():
            begun = time.monotonic()
            try:
                code = await self.client.commands.run(
                    start, out, err, timeout=timeout, slack=DEADLINE_SLACK, limit=max_output
                )
            except TimeoutError:
                code = TIMED_OUT
        return make_result(code, out, err, time.monotonic() - begun, timeout)

    @property
    def client(self) -> HoldClient:
        """Return the client for commands and tasks; its connection is opened when it is needed."""
        if self._client is None:
            self._client = self._open_hold(SETTINGS)
        return self._client

    async def close(self) -> None:
        """Close the connection, which ends the commands; the next one opens another."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
