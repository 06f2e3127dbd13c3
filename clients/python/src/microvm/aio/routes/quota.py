"""What the plan allows, and what a workspace would cost.

Written by `make client`.
"""

from __future__ import annotations

from microvm.aio.group import AsyncGroup
from microvm.types.quota import Estimate, QuotaResponse


class AsyncQuotaRoutes(AsyncGroup):
    """What the plan allows, and what a workspace would cost."""

    async def get(self) -> QuotaResponse:
        """Return the plan's limits, the owned and the running pool, and whether another workspace can be created."""
        answer: QuotaResponse = await self._call("GET", "/workspace/quota")
        return answer

    async def estimate(
        self, *, cpu: float | None = None, disk_mb: int | None = None, ram_mb: int | None = None
    ) -> Estimate:
        """Return the price of a workspace of this size for an hour of full use, and whether one could be created
        now: within the plan and the pools, and on a host with room. Sizes that are left out have the defaults of
        a create. Nothing is reserved. Traffic of disk and network is charged as it occurs.
        """
        answer: Estimate = await self._call(
            "GET", "/workspace/estimate", query={"cpu": cpu, "disk_mb": disk_mb, "ram_mb": ram_mb}, part="estimate"
        )
        return answer
