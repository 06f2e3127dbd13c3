"""TTL, restarts and sleep of a workspace.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.lifecycle import (
    IdlePolicy,
    IdleRequest,
    LifecycleResponse,
    PermanentRequest,
    PingRequest,
    PingResponse,
    TemporaryRequest,
    TtlRequest,
)


class AsyncLifecycleRoutes(AsyncGroup):
    """TTL, restarts and sleep of a workspace."""

    async def get(self, workspace: str) -> LifecycleResponse:
        """Return mode, TTL, restart policy with its history, idle policy, and whether its memory can be saved to
        disk.
        """
        answer: LifecycleResponse = await self._call("GET", f"/workspace/{quoted(workspace)}/lifecycle")
        return answer

    async def set_idle(self, workspace: str, **body: Unpack[IdleRequest]) -> IdlePolicy:
        """Sleep after `suspend_after` without use; drop the memory after `stop_after` of sleep. 0 disables either."""
        answer: IdlePolicy = await self._call(
            "PUT", f"/workspace/{quoted(workspace)}/lifecycle/idle", body=body, part="idle"
        )
        return answer

    async def make_permanent(self, workspace: str, **body: Unpack[PermanentRequest]) -> LifecycleResponse:
        """Make it permanent: the TTL is cleared and the restart policy applies. Return the lifecycle."""
        answer: LifecycleResponse = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/lifecycle/permanent", body=body, again=True
        )
        return answer

    async def make_temporary(self, workspace: str, **body: Unpack[TemporaryRequest]) -> LifecycleResponse:
        """Make it temporary: the TTL starts now; no restarts, no idle policy. Return the lifecycle."""
        answer: LifecycleResponse = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/lifecycle/temporary", body=body, again=True
        )
        return answer

    async def set_ttl(self, workspace: str, **body: Unpack[TtlRequest]) -> LifecycleResponse:
        """Change the TTL or its action of a temporary workspace; a new TTL starts now. Return the lifecycle."""
        answer: LifecycleResponse = await self._call("PUT", f"/workspace/{quoted(workspace)}/lifecycle/ttl", body=body)
        return answer

    async def ping(self, workspace: str, **body: Unpack[PingRequest]) -> PingResponse:
        """Renew the TTL of a temporary workspace: from now by its own length, or once by `ttl_seconds`."""
        answer: PingResponse = await self._call("POST", f"/workspace/{quoted(workspace)}/ping", body=body, again=True)
        return answer
