"""Hosts, for staff: of a client whose token is one of staff (`stf_...`).

Written by `make client`.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.hosts import (
    Drain,
    DrainHostRequest,
    GiveUpRequest,
    Host,
    HostDetails,
    KeptOrphan,
    Move,
    MoveWorkspaceRequest,
    NewTokenRequest,
    NewTokenResponse,
    PatchedChangeHostRequest,
    PutBackResponse,
    ReasonRequest,
)


class AsyncHostRoutes(AsyncGroup):
    """Hosts, for staff: of a client whose token is one of staff (`stf_...`)."""

    def list(
        self,
        *,
        label: str | None = None,
        search: str | None = None,
        state: Literal["active", "draining", "maintenance", "gone", "unreachable"] | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[Host]:
        """List the hosts by name."""
        return self._pages("/staff/hosts", "hosts", {"label": label, "search": search, "state": state}, page_size)

    async def get(self, host: str) -> HostDetails:
        """Return one host, with its images, its orphans, and what is lost with it."""
        answer: HostDetails = await self._call("GET", f"/staff/hosts/{quoted(host)}", part="host")
        return answer

    async def update(self, host: str, **body: Unpack[PatchedChangeHostRequest]) -> HostDetails:
        """Change name, labels or zone. New machines are placed by labels and zone; those that are there stay."""
        answer: HostDetails = await self._call("PATCH", f"/staff/hosts/{quoted(host)}", body=body, part="host")
        return answer

    async def drain(self, host: str, **body: Unpack[DrainHostRequest]) -> Drain:
        """Place nothing new on the host, and move away what is there: what is off first, then what sleeps, then
        what runs. A host that is being drained goes on as it is.
        """
        answer: Drain = await self._call("POST", f"/staff/hosts/{quoted(host)}/drain", body=body, part="drain")
        return answer

    async def move(self, workspace: str, **body: Unpack[MoveWorkspaceRequest]) -> Move:
        """Move a workspace to another host. It keeps its files, its snapshots and, if the hosts are alike, its
        memory; its address changes. A running one stands still only while its memory and what it wrote last are
        copied.
        """
        answer: Move = await self._call(
            "POST", f"/staff/workspaces/{quoted(workspace)}/move", body=body, part="operation"
        )
        return answer

    async def cancel_move(self, workspace: str) -> Move:
        """End a move before its commit: the workspace goes on where it is."""
        answer: Move = await self._call("DELETE", f"/staff/workspaces/{quoted(workspace)}/move", part="operation")
        return answer

    async def activate(self, host: str, **body: Unpack[ReasonRequest]) -> HostDetails:
        """Place and start machines on the host again."""
        answer: HostDetails = await self._call("POST", f"/staff/hosts/{quoted(host)}/activate", body=body, part="host")
        return answer

    async def maintenance(self, host: str, **body: Unpack[ReasonRequest]) -> HostDetails:
        """Start, wake and place nothing on the host. Machines that run stay as they are."""
        answer: HostDetails = await self._call(
            "POST", f"/staff/hosts/{quoted(host)}/maintenance", body=body, part="host"
        )
        return answer

    async def give_up(self, host: str, **body: Unpack[GiveUpRequest]) -> HostDetails:
        """Give up a host that does not come back: its workspaces are lost, and their owners are told."""
        answer: HostDetails = await self._call("POST", f"/staff/hosts/{quoted(host)}/give-up", body=body, part="host")
        return answer

    async def create_token(self, **body: Unpack[NewTokenRequest]) -> NewTokenResponse:
        """Make a token with which one machine joins as a host."""
        answer: NewTokenResponse = await self._call("POST", "/staff/hosts/tokens", body=body)
        return answer

    async def remove(self, host: str, *, reason: str) -> None:
        """Remove a host that has no workspaces. Its credentials end at once."""
        await self._delete(f"/staff/hosts/{quoted(host)}", query={"reason": reason})

    async def orphans(self, host: str) -> builtins.list[KeptOrphan]:
        """List what the host keeps, the oldest first. It reports that once a minute, and after each change by
        staff; what it has kept for seven days it removes.
        """
        answer: builtins.list[KeptOrphan] = await self._call(
            "GET", f"/staff/hosts/{quoted(host)}/orphans", part="orphans"
        )
        return answer

    async def put_back(self, host: str, workspace: str, **body: Unpack[ReasonRequest]) -> PutBackResponse:
        """Give a workspace the files that the host has kept of it: it is `stopped`, on this host, with that disk."""
        answer: PutBackResponse = await self._call(
            "POST", f"/staff/hosts/{quoted(host)}/orphans/{quoted(workspace)}/put-back", body=body
        )
        return answer

    async def remove_orphans(
        self, host: str, workspace: str, *, reason: str, name: str | None = None
    ) -> builtins.list[str]:
        """Remove at once what the host keeps of a workspace: all of it, or that of `name`. The workspace stays."""
        answer: builtins.list[str] = await self._call(
            "DELETE",
            f"/staff/hosts/{quoted(host)}/orphans/{quoted(workspace)}",
            query={"reason": reason, "name": name},
            part="removed",
        )
        return answer
