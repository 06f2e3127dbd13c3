"""Public ports of a workspace.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.addresses import quoted
from microvm.sync.group import Group
from microvm.types.ports import PatchedChangePortRequest, PublicPortResponse, PublicPortsResponse, PublishRequest
from microvm.types.workspaces import PublicPort


class PortRoutes(Group):
    """Public ports of a workspace."""

    def list(self, workspace: str) -> PublicPortsResponse:
        """The public ports and their addresses."""
        answer: PublicPortsResponse = self._call("GET", f"/workspace/{quoted(workspace)}/public-access")
        return answer

    def publish(self, workspace: str, **body: Unpack[PublishRequest]) -> PublicPortResponse:
        """Publish a port. 200 if it is already published: its label and slug are changed."""
        answer: PublicPortResponse = self._call(
            "POST", f"/workspace/{quoted(workspace)}/public-access", body=body, again=True
        )
        return answer

    def change(self, workspace: str, port: int, **body: Unpack[PatchedChangePortRequest]) -> PublicPort:
        """Change the slug or the label of a public port. With another slug it has another address, of the same
        hash.
        """
        answer: PublicPort = self._call(
            "PATCH", f"/workspace/{quoted(workspace)}/public-access/{quoted(port)}", body=body, part="port", again=True
        )
        return answer

    def withdraw(self, workspace: str, port: int) -> None:
        """Unpublish a port and close its open connections."""
        self._delete(f"/workspace/{quoted(workspace)}/public-access/{quoted(port)}")
