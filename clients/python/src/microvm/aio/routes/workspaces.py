"""Workspaces, their creation and their power.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.aio.group import LONG, AsyncGroup
from microvm.types.workspaces import (
    Details,
    ExecRequest,
    ExecResponse,
    ReinstallResponse,
    StartRequest,
    UpdateRequest,
    Workspace,
)


class AsyncWorkspaceRoutes(AsyncGroup):
    """Workspaces, their creation and their power."""

    def list(
        self,
        *,
        mode: Literal["permanent", "temporary"] | None = None,
        namespace: str | None = None,
        search: str | None = None,
        status: Literal[
            "queued",
            "creating",
            "running",
            "stopped",
            "paused",
            "sleeping",
            "failed",
            "destroyed",
            "deleting",
            "lost",
            "starting",
            "stopping",
            "restarting",
            "pausing",
            "resuming",
            "suspending",
            "waking",
            "reinstalling",
            "resizing",
            "restoring",
            "moving",
        ]
        | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[Workspace]:
        """List workspaces, newest first. Sandboxes are listed by `GET /sandbox`. Every other route here also takes
        the id of a sandbox's machine (`sandbox.workspace_id`).
        """
        return self._pages(
            "/workspace",
            "workspaces",
            {"mode": mode, "namespace": namespace, "search": search, "status": status},
            page_size,
        )

    async def get(self, workspace: str) -> Workspace:
        """Return one workspace by id or slug."""
        answer: Workspace = await self._call("GET", f"/workspace/{quoted(workspace)}", part="workspace")
        return answer

    async def details(self, workspace: str) -> Details:
        """Return the workspace with its token (valid for 15 minutes, for this workspace), statistics and
        configuration.
        """
        answer: Details = await self._call("GET", f"/workspace/{quoted(workspace)}/details", part="workspace")
        return answer

    async def update(self, workspace: str, **body: Unpack[UpdateRequest]) -> Workspace:
        """Change name, slug, logo and settings; settings of the machine apply at its next start. 202 while its host
        is away.
        """
        answer: Workspace = await self._call("PUT", f"/workspace/{quoted(workspace)}", body=body, part="workspace")
        return answer

    async def delete(self, workspace: str, *, keep_snapshots: bool | None = None) -> None:
        """Delete the workspace and all its data, from any state. 202 while its creation is being cancelled."""
        await self._delete(f"/workspace/{quoted(workspace)}", query={"keep_snapshots": keep_snapshots}, timeout=LONG)

    async def retry(self, workspace: str) -> Workspace:
        """Try a failed creation again. Answers 202; `provisioning` shows the progress."""
        answer: Workspace = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/provisioning/retry", part="workspace"
        )
        return answer

    async def start(self, workspace: str, **body: Unpack[StartRequest]) -> Workspace:
        """Start a workspace; a paused one is resumed and a sleeping one woken. Idempotent."""
        answer: Workspace = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/start", body=body, part="workspace", timeout=LONG
        )
        return answer

    async def stop(self, workspace: str) -> Workspace:
        """Shut a workspace down; its data is preserved. Idempotent."""
        answer: Workspace = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/stop", part="workspace", timeout=LONG
        )
        return answer

    async def restart(self, workspace: str) -> Workspace:
        """Shut a running workspace down and start it; saved settings are applied."""
        answer: Workspace = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/restart", part="workspace", timeout=LONG
        )
        return answer

    async def pause(self, workspace: str) -> Workspace:
        """Suspend the processes of a running workspace: its memory stays allocated, no CPU is used."""
        answer: Workspace = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/pause", part="workspace", timeout=LONG
        )
        return answer

    async def resume(self, workspace: str) -> Workspace:
        """Resume a paused workspace, or wake a sleeping one. Idempotent."""
        answer: Workspace = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/resume", part="workspace", timeout=LONG
        )
        return answer

    async def sleep(self, workspace: str) -> Workspace:
        """Put a running workspace to sleep at once: its memory is saved to disk and freed."""
        answer: Workspace = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/sleep", part="workspace", timeout=LONG
        )
        return answer

    async def reinstall(self, workspace: str) -> ReinstallResponse:
        """Reset the whole file system to the image and start it. Irreversible; SSH is disabled."""
        answer: ReinstallResponse = await self._call("POST", f"/workspace/{quoted(workspace)}/reinstall", timeout=LONG)
        return answer

    async def destroy(self, workspace: str) -> None:
        """Remove the virtual machine and its disk; the record stays, `destroyed`. Idempotent."""
        await self._delete(f"/workspace/{quoted(workspace)}/lifecycle", timeout=LONG)

    async def exec(self, workspace: str, **body: Unpack[ExecRequest]) -> ExecResponse:
        """Run a command in the workspace to its end. At the timeout the command and all that it began are killed
        (code 124).
        """
        answer: ExecResponse = await self._call("POST", f"/workspace/{quoted(workspace)}/exec", body=body, timeout=LONG)
        return answer
