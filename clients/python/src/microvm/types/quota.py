"""What the plan allows, and what a workspace would cost.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import TypedDict

from microvm.types.workspaces import Resources


class QuotaResponse(TypedDict):
    """Answer, or a part of one, of `quota.get`."""

    plan: str
    planLabel: str
    limits: Resources
    pool: Resources
    pool_usage: PoolUsage
    running_pool: Resources
    running_pool_usage: PoolUsage
    maxSandboxes: int
    currentSandboxes: int
    canCreate: bool
    reason: str | None


class PoolUsage(TypedDict):
    """Answer, or a part of one, of `quota.get`."""

    count: int
    cpus: float
    memory_mb: int
    disk_size_mb: int


class EstimateResponse(TypedDict):
    """Answer, or a part of one, of `quota.estimate`."""

    estimate: Estimate


class Estimate(TypedDict):
    """Answer, or a part of one, of `quota.estimate`."""

    credits_per_hour: float
    available: bool
