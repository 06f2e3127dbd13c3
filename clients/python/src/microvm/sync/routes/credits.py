"""Credit quotas of namespaces, and their defaults.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.sync.group import Group
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


class CreditRoutes(Group):
    """Credit quotas of namespaces, and their defaults."""

    def set_quota(self, **body: Unpack[SetQuotaRequest]) -> QuotaRecord:
        """Set the quota of a namespace for a service, and re-arm its thresholds. What is used stays."""
        answer: QuotaRecord = self._call("POST", "/credits/namespace-quota", body=body, part="data", again=True)
        return answer

    def reset_quota(self, **body: Unpack[QuotaNameRequest]) -> QuotaRecord:
        """Return what is used to zero and re-arm the thresholds. Idempotent."""
        answer: QuotaRecord = self._call("POST", "/credits/reset-quota", body=body, part="data")
        return answer

    def list(
        self, *, status: Literal["active", "inactive", "suspended"] | None = None, page_size: int = 100
    ) -> Iterator[NamespaceQuotas]:
        """Namespaces with their quotas. The sums are those of all pages."""
        return self._offsets("/credits/namespaces", "data", {"status": status}, page_size)

    def get(self, namespace: str, *, days: int | None = None) -> NamespaceCredits:
        """Quotas, what was spent by service and by UTC day, and the newest 50 entries of the ledger."""
        answer: NamespaceCredits = self._call(
            "GET", f"/credits/namespaces/{quoted(namespace)}", query={"days": days}, part="data"
        )
        return answer

    def set_default(self, **body: Unpack[SetDefaultRequest]) -> QuotaDefault:
        """Set the default of a service, with the overdraft, action and thresholds of the quotas that are made from
        it.
        """
        answer: QuotaDefault = self._call("POST", "/credits/defaults", body=body, part="data", again=True)
        return answer

    def get_default(self, *, level: Literal["namespace"], service: str) -> QuotaDefault:
        """The default of one service."""
        answer: QuotaDefault = self._call(
            "GET", "/credits/defaults", query={"level": level, "service": service}, part="data"
        )
        return answer

    def defaults(self, *, level: Literal["namespace"] | None = None) -> builtins.list[QuotaDefault]:
        """The defaults of all services."""
        answer: builtins.list[QuotaDefault] = self._call(
            "GET", "/credits/defaults/all", query={"level": level}, part="data"
        )
        return answer

    def toggle_auto_apply(self, **body: Unpack[DefaultNameRequest]) -> QuotaDefault:
        """Switch whether namespaces without a quota get it."""
        answer: QuotaDefault = self._call("POST", "/credits/defaults/toggle-auto-apply", body=body, part="data")
        return answer

    def delete_default(self, *, level: Literal["namespace"], service: str) -> None:
        """Delete the default that the body or the query names. Quotas that were made from it stay."""
        self._delete("/credits/defaults", query={"level": level, "service": service})
