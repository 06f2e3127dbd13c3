"""Namespaces, what happens in them and what they use.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.aio.group import LONG, AsyncGroup
from microvm.types.namespaces import (
    CreateNamespaceRequest,
    DeletedNamespaceResponse,
    EnsureNamespaceRequest,
    Namespace,
    NamespaceActivity,
    NamespaceUsage,
    StoppedWorkspacesResponse,
    UpdateNamespaceRequest,
    UsageUnitsResponse,
)


class AsyncNamespaceRoutes(AsyncGroup):
    """Namespaces, what happens in them and what they use."""

    async def create(self, **body: Unpack[CreateNamespaceRequest]) -> Namespace:
        """Create a namespace. If the slug is left out, it is made from the name."""
        answer: Namespace = await self._call("POST", "/namespaces", body=body, part="data")
        return answer

    async def ensure(self, **body: Unpack[EnsureNamespaceRequest]) -> Namespace:
        """Return the namespace with this slug; if there is none, create it: 201 and `created` true. Idempotent."""
        answer: Namespace = await self._call("POST", "/namespaces/ensure", body=body, part="data", again=True)
        return answer

    def list(
        self,
        *,
        search: str | None = None,
        sort_by: Literal["name", "created_at", "updated_at"] | None = None,
        sort_order: Literal["ASC", "DESC"] | None = None,
        status: Literal["active", "inactive", "suspended"] | None = None,
        type: Literal["default", "production", "staging", "development", "testing"] | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[Namespace]:
        """List the account's namespaces, or the one that the credential is bound to."""
        return self._offsets(
            "/namespaces",
            "data",
            {"search": search, "sortBy": sort_by, "sortOrder": sort_order, "status": status, "type": type},
            page_size,
        )

    async def get(self, namespace: str) -> Namespace:
        """Return one namespace."""
        answer: Namespace = await self._call("GET", f"/namespaces/{quoted(namespace)}", part="data")
        return answer

    async def update(self, namespace: str, **body: Unpack[UpdateNamespaceRequest]) -> Namespace:
        """Change the given fields. `status` `suspended` and `active` do what suspend and activate do."""
        answer: Namespace = await self._call("PUT", f"/namespaces/{quoted(namespace)}", body=body, part="data")
        return answer

    async def delete(self, namespace: str, *, delete_workspaces: bool | None = None) -> DeletedNamespaceResponse:
        """Delete a namespace, and either move its workspaces to the default one or destroy them with all their
        data.
        """
        answer: DeletedNamespaceResponse = await self._call(
            "DELETE", f"/namespaces/{quoted(namespace)}", query={"deleteWorkspaces": delete_workspaces}, timeout=LONG
        )
        return answer

    async def suspend(self, namespace: str) -> StoppedWorkspacesResponse:
        """Suspend by hand: every machine in it is stopped, and nothing is created or started. Idempotent."""
        answer: StoppedWorkspacesResponse = await self._call(
            "POST", f"/namespaces/{quoted(namespace)}/suspend", timeout=LONG, again=True
        )
        return answer

    async def activate(self, namespace: str) -> Namespace:
        """End a suspension by hand. Workspaces are not started again."""
        answer: Namespace = await self._call(
            "POST", f"/namespaces/{quoted(namespace)}/activate", part="data", again=True
        )
        return answer

    async def stop_workspaces(self, namespace: str) -> StoppedWorkspacesResponse:
        """Stop every machine that runs in it; the status stays. Idempotent."""
        answer: StoppedWorkspacesResponse = await self._call(
            "POST", f"/namespaces/{quoted(namespace)}/stop-workspaces", timeout=LONG, again=True
        )
        return answer

    def activity(self, namespace: str, *, page_size: int = 100) -> AsyncIterator[NamespaceActivity]:
        """List the activity of a namespace, newest first."""
        return self._offsets(f"/namespaces/{quoted(namespace)}/activity", "data", {}, page_size)

    async def usage(self, namespace: str, *, days: int | None = None, service: str | None = None) -> NamespaceUsage:
        """Return the spending of a namespace by UTC day and service, oldest first."""
        answer: NamespaceUsage = await self._call(
            "GET", f"/namespaces/{quoted(namespace)}/usage", query={"days": days, "service": service}, part="data"
        )
        return answer

    async def usage_units(
        self,
        namespace: str,
        *,
        from_: str | None = None,
        group_by: Literal["hour", "day"] | None = None,
        to: str | None = None,
    ) -> UsageUnitsResponse:
        """Return raw usage units by hour or day of UTC; the end of the range is excluded."""
        answer: UsageUnitsResponse = await self._call(
            "GET", f"/namespaces/{quoted(namespace)}/usage-units", query={"from": from_, "groupBy": group_by, "to": to}
        )
        return answer
