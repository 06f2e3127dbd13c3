"""The present state of a workspace's machine.

Written by `make client`.
"""

from __future__ import annotations

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.metrics import ConfigResponse, InfoResponse, Stats


class AsyncMetricRoutes(AsyncGroup):
    """The present state of a workspace's machine."""

    async def stats(self, workspace: str) -> Stats:
        """Return current statistics, sampled every second; zeros while it does not run. `guest*` is reported by the
        guest.
        """
        answer: Stats = await self._call("GET", f"/workspace/{quoted(workspace)}/stats", part="stats")
        return answer

    async def info(self, workspace: str) -> InfoResponse:
        """Return the machine on its host: its state as reported by the hypervisor, its definition and its counters."""
        answer: InfoResponse = await self._call("GET", f"/workspace/{quoted(workspace)}/info")
        return answer

    async def config(self, workspace: str) -> ConfigResponse:
        """Return the saved configuration of the machine. Values of the environment are not shown."""
        answer: ConfigResponse = await self._call("GET", f"/workspace/{quoted(workspace)}/config")
        return answer
