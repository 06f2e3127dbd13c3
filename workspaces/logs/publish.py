"""From a log to its channel: one look after the other, each told in one step with the place it leads to."""

from __future__ import annotations

import asyncio

from common.sse.replay import PAUSED, Channel, ReplayBuffer, Superseded
from workspaces.logs.channels import log_events
from workspaces.logs.follow import Follower, LogFiles, LogPosition, initial_position
from workspaces.logs.sources import LogSource

HELD_SECONDS = 0.2


class LogPublisher:
    """Writes one log's channel. After Superseded it begins again from the stored position."""

    def __init__(self, replay: ReplayBuffer, channel: Channel, source: LogSource, files: LogFiles) -> None:
        self._replay = replay
        self._channel = channel
        self._source = source
        self._files = files
        self._follower: Follower | None = None
        self._position = ""

    async def step(self) -> bool:
        """Look once, tell what came; returns whether anything did. Raises RedisError and what the files raise."""
        try:
            return await self._advance() if self._follower else await self._begin()
        except Superseded:
            self._follower = None
            return True

    async def _begin(self) -> bool:
        self._position = await self._replay.position(self._channel)
        if self._position == PAUSED:
            await asyncio.sleep(HELD_SECONDS)
            return False
        if self._position:
            self._follower = Follower(self._files, LogPosition.parse(self._position))
            return await self._advance()
        found = await initial_position(self._files)
        await self._write(log_events(found, self._source, live=False), str(found.place))
        self._follower = Follower(self._files, found.place)
        return True

    async def _advance(self) -> bool:
        assert self._follower is not None  # noqa: S101 `step` says so
        look = await self._follower.look()
        if look is None:
            return False
        await self._write(log_events(look, self._source, live=True), str(look.place))
        self._follower.told(look)
        return True

    async def _write(self, events: list[tuple[str, str]], position: str) -> None:
        await self._replay.append(self._channel, events, expected=self._position, position=position)
        self._position = position
