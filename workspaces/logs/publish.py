"""Publishing a log: changes are polled for, and published in one step with the position they lead to."""

from __future__ import annotations

import asyncio

from common.sse.replay import PAUSED, Channel, ReplayBuffer, Superseded
from workspaces.logs.channels import log_events
from workspaces.logs.follow import Follower, initial_position
from workspaces.logs.position import LogFiles, LogPosition
from workspaces.logs.sources import LogSource

PAUSED_SECONDS = 0.2


class LogPublisher:
    """Writer of one log's channel. After Superseded it starts again from the stored position."""

    def __init__(self, replay: ReplayBuffer, channel: Channel, source: LogSource, files: LogFiles) -> None:
        self._replay = replay
        self._channel = channel
        self._source = source
        self._files = files
        self._follower: Follower | None = None
        self._position = ""

    async def step(self) -> bool:
        """Poll once and publish. Return whether anything was new. Raise RedisError and the errors of the files."""
        try:
            return await self._advance(self._follower) if self._follower else await self._begin()
        except Superseded:
            self._follower = None
            return True

    async def _begin(self) -> bool:
        self._position = await self._replay.position(self._channel)
        if self._position == PAUSED:
            await asyncio.sleep(PAUSED_SECONDS)
            return False
        if self._position:
            self._follower = Follower(self._files, LogPosition.parse(self._position))
            return await self._advance(self._follower)
        found = await initial_position(self._files)
        await self._write(log_events(found, self._source, live=False), str(found.position))
        self._follower = Follower(self._files, found.position)
        return True

    async def _advance(self, follower: Follower) -> bool:
        changes = await follower.poll()
        if changes is None:
            return False
        await self._write(log_events(changes, self._source, live=True), str(changes.position))
        follower.accept(changes)
        return True

    async def _write(self, events: list[tuple[str, str]], position: str) -> None:
        await self._replay.append(self._channel, events, expected=self._position, position=position)
        self._position = position
