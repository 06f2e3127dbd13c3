"""Watchers of folders in one workspace, with a token of its runtime.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.runtime_watchers import Watcher, WatcherRequest


class AsyncRuntimeWatcherRoutes(AsyncGroup):
    """Watchers of folders in one workspace, with a token of its runtime."""

    async def list(self) -> builtins.list[Watcher]:
        """Return the watchers of the workspace."""
        answer: builtins.list[Watcher] = await self._call("GET", "/watchers", part="watchers")
        return answer

    async def create(self, **body: Unpack[WatcherRequest]) -> Watcher:
        """Watch all folders below one; return once they are watched."""
        answer: Watcher = await self._call("POST", "/watchers", body=body, part="watcher")
        return answer

    async def get(self, watcher: str) -> Watcher:
        """Return a watcher."""
        answer: Watcher = await self._call("GET", f"/watchers/{quoted(watcher)}", part="watcher")
        return answer

    async def remove(self, watcher: str) -> None:
        """End a watcher."""
        await self._delete(f"/watchers/{quoted(watcher)}")
