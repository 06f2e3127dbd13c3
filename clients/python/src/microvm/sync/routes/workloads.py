"""Supervised programs of a workspace, read and changed while it runs.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from typing import Unpack

from microvm.addresses import quoted
from microvm.sync.group import Group
from microvm.types.logs import LogEntry
from microvm.types.workloads import (
    PatchedWorkloadPatch,
    Workload,
    WorkloadChangedResponse,
    WorkloadPatch,
    WorkloadRemovedResponse,
    WorkloadsRemovedResponse,
    WorkloadStats,
)
from microvm.types.workspaces import WorkloadRequest


class WorkloadRoutes(Group):
    """Supervised programs of a workspace, read and changed while it runs."""

    def list(self, workspace: str) -> builtins.list[Workload]:
        """What is saved, and how the processes of the running guest are. Those of a workspace that does not run are
        `stopped`.
        """
        answer: builtins.list[Workload] = self._call(
            "GET", f"/workspace/{quoted(workspace)}/workloads", part="workloads"
        )
        return answer

    def create(self, workspace: str, **body: Unpack[WorkloadRequest]) -> WorkloadChangedResponse:
        """Add a workload (at most 32). In a running guest it starts within some seconds."""
        answer: WorkloadChangedResponse = self._call("POST", f"/workspace/{quoted(workspace)}/workloads", body=body)
        return answer

    def get(self, workspace: str, workload: str) -> Workload:
        """One workload, by its name."""
        answer: Workload = self._call(
            "GET", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}", part="workload"
        )
        return answer

    def update(self, workspace: str, workload: str, **body: Unpack[PatchedWorkloadPatch]) -> WorkloadChangedResponse:
        """Change the given fields of a saved workload; PUT and PATCH are equivalent."""
        answer: WorkloadChangedResponse = self._call(
            "PATCH", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}", body=body, again=True
        )
        return answer

    def put(self, workspace: str, workload: str, **body: Unpack[WorkloadPatch]) -> WorkloadChangedResponse:
        """Change the given fields of a saved workload; PUT and PATCH are equivalent."""
        answer: WorkloadChangedResponse = self._call(
            "PUT", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}", body=body, again=True
        )
        return answer

    def delete(self, workspace: str, workload: str) -> WorkloadRemovedResponse:
        """End and remove a workload; its log stays. The response shows what it was."""
        answer: WorkloadRemovedResponse = self._call(
            "DELETE", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}"
        )
        return answer

    def delete_all(self, workspace: str) -> WorkloadsRemovedResponse:
        """End and remove all saved workloads; their logs stay. What is in the guest alone stays, as a desktop."""
        answer: WorkloadsRemovedResponse = self._call("DELETE", f"/workspace/{quoted(workspace)}/workloads", again=True)
        return answer

    def status(self, workspace: str, workload: str) -> Workload:
        """As the workload itself: its state and process."""
        answer: Workload = self._call(
            "GET", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/status", part="workload"
        )
        return answer

    def logs(self, workspace: str, workload: str, *, tail_lines: int | None = None) -> builtins.list[LogEntry]:
        """The last lines of a saved workload's log, as `logs?source=` has them."""
        answer: builtins.list[LogEntry] = self._call(
            "GET",
            f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/logs",
            query={"tail_lines": tail_lines},
            part="logs",
        )
        return answer

    def stats(self, workspace: str, workload: str) -> WorkloadStats:
        """What a workload takes at present. It is measured for half a second."""
        answer: WorkloadStats = self._call(
            "GET", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/stats", part="stats"
        )
        return answer

    def start(self, workspace: str, workload: str) -> Workload:
        """Start a workload that ended or was stopped. Nothing happens to one that runs."""
        answer: Workload = self._call(
            "POST", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/start", part="workload", again=True
        )
        return answer

    def stop(self, workspace: str, workload: str) -> Workload:
        """End a workload until it is started by hand, or until the next start of the workspace."""
        answer: Workload = self._call(
            "POST", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/stop", part="workload", again=True
        )
        return answer
