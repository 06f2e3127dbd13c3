"""Network settings of a workspace.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.network import NetworkChangedResponse, NetworkRequest, PatchedNetworkRequest
from microvm.types.workspaces import Network


class AsyncNetworkRoutes(AsyncGroup):
    """Network settings of a workspace."""

    async def get(self, workspace: str) -> Network:
        """Return the network settings."""
        answer: Network = await self._call("GET", f"/workspace/{quoted(workspace)}/network", part="network")
        return answer

    async def update(self, workspace: str, **body: Unpack[NetworkRequest]) -> NetworkChangedResponse:
        """Change the given fields; PUT and PATCH are equivalent. A running machine is changed immediately."""
        answer: NetworkChangedResponse = await self._call("PUT", f"/workspace/{quoted(workspace)}/network", body=body)
        return answer

    async def patch(self, workspace: str, **body: Unpack[PatchedNetworkRequest]) -> NetworkChangedResponse:
        """Change the given fields; PUT and PATCH are equivalent. A running machine is changed immediately."""
        answer: NetworkChangedResponse = await self._call(
            "PATCH", f"/workspace/{quoted(workspace)}/network", body=body, again=True
        )
        return answer
