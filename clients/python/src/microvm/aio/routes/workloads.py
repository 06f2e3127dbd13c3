"""Supervised programs of a workspace, read and changed while it runs.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
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


class AsyncWorkloadRoutes(AsyncGroup):
    """Supervised programs of a workspace, read and changed while it runs."""

    async def list(self, workspace: str) -> builtins.list[Workload]:
        """List saved workloads, and the state of their processes in the running guest. If the workspace does not
        run, all of them are `stopped`.
        """
        answer: builtins.list[Workload] = await self._call(
            "GET", f"/workspace/{quoted(workspace)}/workloads", part="workloads"
        )
        return answer

    async def create(self, workspace: str, **body: Unpack[WorkloadRequest]) -> WorkloadChangedResponse:
        """Add a workload (at most 32). In a running guest it starts within some seconds."""
        answer: WorkloadChangedResponse = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/workloads", body=body
        )
        return answer

    async def get(self, workspace: str, workload: str) -> Workload:
        """Return one workload, by its name."""
        answer: Workload = await self._call(
            "GET", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}", part="workload"
        )
        return answer

    async def update(
        self, workspace: str, workload: str, **body: Unpack[PatchedWorkloadPatch]
    ) -> WorkloadChangedResponse:
        """Change the given fields of a saved workload; PUT and PATCH are equivalent."""
        answer: WorkloadChangedResponse = await self._call(
            "PATCH", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}", body=body, again=True
        )
        return answer

    async def put(self, workspace: str, workload: str, **body: Unpack[WorkloadPatch]) -> WorkloadChangedResponse:
        """Change the given fields of a saved workload; PUT and PATCH are equivalent."""
        answer: WorkloadChangedResponse = await self._call(
            "PUT", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}", body=body, again=True
        )
        return answer

    async def delete(self, workspace: str, workload: str) -> WorkloadRemovedResponse:
        """End and remove a workload; its log stays. The response shows the workload as it was."""
        answer: WorkloadRemovedResponse = await self._call(
            "DELETE", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}"
        )
        return answer

    async def delete_all(self, workspace: str) -> WorkloadsRemovedResponse:
        """End and remove all saved workloads; their logs stay. Workloads that only the guest has stay, such as a
        desktop's.
        """
        answer: WorkloadsRemovedResponse = await self._call(
            "DELETE", f"/workspace/{quoted(workspace)}/workloads", again=True
        )
        return answer

    async def status(self, workspace: str, workload: str) -> Workload:
        """Return the workload itself: its state and process."""
        answer: Workload = await self._call(
            "GET", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/status", part="workload"
        )
        return answer

    async def logs(self, workspace: str, workload: str, *, tail_lines: int | None = None) -> builtins.list[LogEntry]:
        """Return the last lines of a saved workload's log, as `logs?source=` does."""
        answer: builtins.list[LogEntry] = await self._call(
            "GET",
            f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/logs",
            query={"tail_lines": tail_lines},
            part="logs",
        )
        return answer

    async def stats(self, workspace: str, workload: str) -> WorkloadStats:
        """Return CPU and memory that a workload uses at present, measured for half a second."""
        answer: WorkloadStats = await self._call(
            "GET", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/stats", part="stats"
        )
        return answer

    async def start(self, workspace: str, workload: str) -> Workload:
        """Start a workload that ended or was stopped. A workload that runs is left as it is."""
        answer: Workload = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/start", part="workload", again=True
        )
        return answer

    async def stop(self, workspace: str, workload: str) -> Workload:
        """Stop a workload until it is started by hand, or until the next start of the workspace."""
        answer: Workload = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/workloads/{quoted(workload)}/stop", part="workload", again=True
        )
        return answer
