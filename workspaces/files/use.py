"""A transfer that goes on keeps its workspace awake."""

from __future__ import annotations

import asyncio
import time

from workspaces.lifecycle import activity

# Well below the shortest idle time, and seldom beside a chunk.
NOTE_SECONDS = 20.0


class Use:
    """Notes that a workspace is in use, at most every NOTE_SECONDS; call it with each chunk."""

    def __init__(self, workspace_id: str) -> None:
        self._workspace_id = workspace_id
        self._noted = time.monotonic()  # `address_of` noted the beginning

    def note(self) -> None:
        """For a thread: it may wait for Redis."""
        if self._is_due():
            activity.touch(self._workspace_id)

    async def anote(self) -> None:
        """For an event loop, which does not wait."""
        if self._is_due():
            await asyncio.to_thread(activity.touch, self._workspace_id)

    def _is_due(self) -> bool:
        now = time.monotonic()
        if now - self._noted < NOTE_SECONDS:
            return False
        self._noted = now
        return True
