"""Credit quotas of namespaces, and their defaults.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.aio.group import AsyncGroup
from microvm.types.credits import (
    DefaultNameRequest,
    NamespaceCredits,
    NamespaceQuotas,
    QuotaDefault,
    QuotaNameRequest,
    SetDefaultRequest,
    SetQuotaRequest,
)
from microvm.types.namespaces import QuotaRecord


class AsyncCreditRoutes(AsyncGroup):
    """Credit quotas of namespaces, and their defaults."""

    async def set_quota(self, **body: Unpack[SetQuotaRequest]) -> QuotaRecord:
        """Set the quota of a namespace for a service, and re-arm its thresholds. Used credits stay."""
        answer: QuotaRecord = await self._call("POST", "/credits/namespace-quota", body=body, part="data", again=True)
        return answer

    async def reset_quota(self, **body: Unpack[QuotaNameRequest]) -> QuotaRecord:
        """Set the used credits of a service to zero and re-arm the thresholds. Idempotent."""
        answer: QuotaRecord = await self._call("POST", "/credits/reset-quota", body=body, part="data")
        return answer

    def list(
        self, *, status: Literal["active", "inactive", "suspended"] | None = None, page_size: int = 100
    ) -> AsyncIterator[NamespaceQuotas]:
        """List namespaces with their quotas. The sums are those of all pages."""
        return self._offsets("/credits/namespaces", "data", {"status": status}, page_size)

    async def get(self, namespace: str, *, days: int | None = None) -> NamespaceCredits:
        """Return quotas, spending by service and by UTC day, and the newest 50 entries of the ledger."""
        answer: NamespaceCredits = await self._call(
            "GET", f"/credits/namespaces/{quoted(namespace)}", query={"days": days}, part="data"
        )
        return answer

    async def set_default(self, **body: Unpack[SetDefaultRequest]) -> QuotaDefault:
        """Set the default quota of a service, with the overdraft, action and thresholds of the quotas that are made
        from it. Existing quotas do not change.
        """
        answer: QuotaDefault = await self._call("POST", "/credits/defaults", body=body, part="data", again=True)
        return answer

    async def get_default(self, *, level: Literal["namespace"], service: str) -> QuotaDefault:
        """Return the default quota of one service."""
        answer: QuotaDefault = await self._call(
            "GET", "/credits/defaults", query={"level": level, "service": service}, part="data"
        )
        return answer

    async def defaults(self, *, level: Literal["namespace"] | None = None) -> builtins.list[QuotaDefault]:
        """List the default quotas of all services."""
        answer: builtins.list[QuotaDefault] = await self._call(
            "GET", "/credits/defaults/all", query={"level": level}, part="data"
        )
        return answer

    async def toggle_auto_apply(self, **body: Unpack[DefaultNameRequest]) -> QuotaDefault:
        """Switch whether namespaces without a quota get the default quota."""
        answer: QuotaDefault = await self._call("POST", "/credits/defaults/toggle-auto-apply", body=body, part="data")
        return answer

    async def delete_default(self, *, level: Literal["namespace"], service: str) -> None:
        """Delete the default quota that the body or the query names. Quotas that were made from it stay."""
        await self._delete("/credits/defaults", query={"level": level, "service": service})
