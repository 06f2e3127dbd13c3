"""What the event streams of workloads have."""

from __future__ import annotations

from typing import TypedDict

from microvm.types.workloads import WorkloadStats


class WorkloadOutput(TypedDict):
    """A line of a workload."""

    data: str
    stream: str
    timestamp: str | None


class NamedWorkloadStats(WorkloadStats):
    """What a workload takes; `id` is its name."""

    id: str
