"""Events of the streams of workloads."""

from __future__ import annotations

from typing import TypedDict

from microvm.types.workloads import WorkloadStats


class WorkloadOutput(TypedDict):
    """A line of a workload."""

    data: str
    stream: str
    timestamp: str | None


class NamedWorkloadStats(WorkloadStats):
    """The use of one workload; `id` is its name."""

    id: str
