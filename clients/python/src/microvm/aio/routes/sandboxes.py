"""Sandboxes at the level of the account; `open` reaches into one.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.aio.group import LONG, AsyncGroup
from microvm.types.sandboxes import Sandbox, SandboxForkEntry, SandboxMetrics
from microvm.types.snapshots import ForkRequest, RestoreRequest, Snapshot, SnapshotRequest


class AsyncSandboxRoutes(AsyncGroup):
    """Sandboxes at the level of the account; `open` reaches into one."""

    def list(
        self,
        *,
        namespace: str | None = None,
        status: Literal["active", "stopped", "suspended", "creating", "failed"] | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[Sandbox]:
        """Sandboxes, newest first, without their tokens."""
        return self._pages("/sandbox", "sandboxes", {"namespace": namespace, "status": status}, page_size)

    async def get(self, sandbox: str) -> Sandbox:
        """One sandbox, without its token."""
        answer: Sandbox = await self._call("GET", f"/sandbox/{quoted(sandbox)}", part="sandbox")
        return answer

    async def delete(self, sandbox: str, *, keep_snapshots: bool | None = None) -> None:
        """Delete the sandbox and all its data, from any state. Its token ends immediately."""
        await self._delete(f"/sandbox/{quoted(sandbox)}", query={"keep_snapshots": keep_snapshots}, timeout=LONG)

    async def start(self, sandbox: str) -> Sandbox:
        """Start a sandbox; a suspended one goes on where it was. Idempotent."""
        answer: Sandbox = await self._call("POST", f"/sandbox/{quoted(sandbox)}/start", part="sandbox", timeout=LONG)
        return answer

    async def stop(self, sandbox: str) -> Sandbox:
        """Shut a sandbox down; its data is preserved. Idempotent."""
        answer: Sandbox = await self._call("POST", f"/sandbox/{quoted(sandbox)}/stop", part="sandbox", timeout=LONG)
        return answer

    async def restart(self, sandbox: str) -> Sandbox:
        """Shut a running sandbox down and start it; saved settings are applied."""
        answer: Sandbox = await self._call("POST", f"/sandbox/{quoted(sandbox)}/restart", part="sandbox", timeout=LONG)
        return answer

    async def regenerate_token(self, sandbox: str) -> str:
        """Replace the token. The old one is refused immediately; its open WebSockets, downloads and uploads end
        within a second.
        """
        answer: str = await self._call("POST", f"/sandbox/{quoted(sandbox)}/regenerate-token", part="token")
        return answer

    async def metrics(self, sandbox: str) -> SandboxMetrics:
        """Current use, sampled every second; zeros while it does not run."""
        answer: SandboxMetrics = await self._call("GET", f"/sandbox/{quoted(sandbox)}/metrics", part="metrics")
        return answer

    async def snapshot(self, sandbox: str, **body: Unpack[SnapshotRequest]) -> Snapshot:
        """Keep disk and memory of the sandbox, as of a workspace."""
        answer: Snapshot = await self._call(
            "POST", f"/sandbox/{quoted(sandbox)}/snapshot", body=body, part="snapshot", timeout=LONG, keyed=True
        )
        return answer

    async def restore(self, sandbox: str, **body: Unpack[RestoreRequest]) -> Sandbox:
        """Put the sandbox back to one of its snapshots, as a workspace. Address and token stay."""
        answer: Sandbox = await self._call(
            "POST", f"/sandbox/{quoted(sandbox)}/restore", body=body, part="sandbox", timeout=LONG
        )
        return answer

    async def fork(self, sandbox: str, **body: Unpack[ForkRequest]) -> builtins.list[SandboxForkEntry]:
        """Make copies of the sandbox, as of a workspace. Each has an address and a token, which is shown only here."""
        answer: builtins.list[SandboxForkEntry] = await self._call(
            "POST", f"/sandbox/{quoted(sandbox)}/fork", body=body, part="forks", timeout=LONG, keyed=True
        )
        return answer
