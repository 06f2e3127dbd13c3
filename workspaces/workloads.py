"""Workloads of a workspace as the machine's configuration takes them (wire contract, section 3)."""

from __future__ import annotations

from typing import Any

from vmbackend.driver import Workload, WorkloadRestart

MAX_WORKLOADS = 32


def workload(item: dict[str, Any]) -> Workload:
    """Return a workload of the row as the machine takes it (wire contract, section 3)."""
    return Workload(
        name=item["name"],
        cmd=tuple(item["cmd"]),
        env=item.get("env") or {},
        working_dir=item.get("working_dir"),
        user=item.get("user"),
        restart=WorkloadRestart(item.get("restart_policy", WorkloadRestart.ON_FAILURE)),
        max_restarts=item.get("max_restarts", 0),
        restart_delay=item.get("restart_delay", 1),
        log_path=item.get("log_path"),
    )
