"""Network settings of a workspace.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.addresses import quoted
from microvm.sync.group import Group
from microvm.types.network import NetworkChangedResponse, NetworkRequest, PatchedNetworkRequest
from microvm.types.workspaces import Network


class NetworkRoutes(Group):
    """Network settings of a workspace."""

    def get(self, workspace: str) -> Network:
        """The network settings."""
        answer: Network = self._call("GET", f"/workspace/{quoted(workspace)}/network", part="network")
        return answer

    def update(self, workspace: str, **body: Unpack[NetworkRequest]) -> NetworkChangedResponse:
        """Change the given fields; PUT and PATCH are equivalent. A running machine is changed immediately."""
        answer: NetworkChangedResponse = self._call("PUT", f"/workspace/{quoted(workspace)}/network", body=body)
        return answer

    def patch(self, workspace: str, **body: Unpack[PatchedNetworkRequest]) -> NetworkChangedResponse:
        """Change the given fields; PUT and PATCH are equivalent. A running machine is changed immediately."""
        answer: NetworkChangedResponse = self._call(
            "PATCH", f"/workspace/{quoted(workspace)}/network", body=body, again=True
        )
        return answer
