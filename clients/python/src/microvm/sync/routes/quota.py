"""What the plan allows, and what a workspace would cost.

Written by `make client`.
"""

from __future__ import annotations

from microvm.sync.group import Group
from microvm.types.quota import Estimate, QuotaResponse


class QuotaRoutes(Group):
    """What the plan allows, and what a workspace would cost."""

    def get(self) -> QuotaResponse:
        """The plan's limits, the owned and the running pool, and whether another workspace can be created."""
        answer: QuotaResponse = self._call("GET", "/workspace/quota")
        return answer

    def estimate(self, *, cpu: float | None = None, disk_mb: int | None = None, ram_mb: int | None = None) -> Estimate:
        """What a workspace of this size costs in an hour of full use, and whether one could be created now: within
        the plan and the pools, and on a host with room. What is left out is as in a create. Nothing is reserved.
        Traffic of disk and network is charged as it occurs.
        """
        answer: Estimate = self._call(
            "GET", "/workspace/estimate", query={"cpu": cpu, "disk_mb": disk_mb, "ram_mb": ram_mb}, part="estimate"
        )
        return answer
