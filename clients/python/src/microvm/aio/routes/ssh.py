"""SSH of a workspace.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.ssh import KeyRequest, Ssh, SshChanged


class AsyncSshRoutes(AsyncGroup):
    """SSH of a workspace."""

    async def get(self, workspace: str) -> Ssh:
        """Return the address to connect to, the host key to expect, and the authorized keys."""
        answer: Ssh = await self._call("GET", f"/workspace/{quoted(workspace)}/ssh", part="ssh")
        return answer

    async def enable(self, workspace: str) -> SshChanged:
        """Start the SSH server of the workspace; its keys are authorized."""
        answer: SshChanged = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/ssh/enable", part="ssh", again=True
        )
        return answer

    async def disable(self, workspace: str) -> SshChanged:
        """Stop the SSH server and close its sessions; the keys stay stored."""
        answer: SshChanged = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/ssh/disable", part="ssh", again=True
        )
        return answer

    async def change_key(self, workspace: str, **body: Unpack[KeyRequest]) -> SshChanged:
        """Add a public key (at most 32), or with `remove` delete one, by its line or its fingerprint."""
        answer: SshChanged = await self._call(
            "POST", f"/workspace/{quoted(workspace)}/ssh/key", body=body, part="ssh", again=True
        )
        return answer
