"""Credit quotas of namespaces, and their defaults.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from microvm.types.namespaces import QuotaRecord


class SetQuotaRequest(TypedDict):
    """Body, or a part of it, of `credits.set_quota`."""

    namespace: str
    service: str
    quotaLimit: float
    overdraft: NotRequired[float]
    onOverdraftAction: NotRequired[Literal["block", "stop_workspaces"]]
    notificationThresholds: NotRequired[list[float] | None]


class NamespaceQuotaResponse(TypedDict):
    """Answer, or a part of one, of `credits.set_quota`."""

    data: QuotaRecord


class QuotaNameRequest(TypedDict):
    """Body, or a part of it, of `credits.reset_quota`."""

    namespace: str
    service: str


class NamespaceQuotasList(TypedDict):
    """Answer, or a part of one, of `credits.list`."""

    data: list[NamespaceQuotas]
    aggregations: dict[str, Any]
    pagination: dict[str, Any]


class NamespaceQuotas(TypedDict):
    """Answer, or a part of one, of `credits.list`."""

    namespace: str
    status: str
    quotas: list[QuotaRecord]


class NamespaceCreditsResponse(TypedDict):
    """Answer, or a part of one, of `credits.get`."""

    data: NamespaceCredits


class NamespaceCredits(TypedDict):
    """Answer, or a part of one, of `credits.get`."""

    namespace: str
    status: str
    quotas: list[QuotaRecord]
    usage: CreditTotals
    services: list[ServiceCredits]
    timeline: list[DayCredits]
    transactions: list[CreditTransaction]


class CreditTotals(TypedDict):
    """Answer, or a part of one, of `credits.get`."""

    total_requests: int
    total_credits: float


class ServiceCredits(TypedDict):
    """Answer, or a part of one, of `credits.get`."""

    service: str
    credits: float
    requests: int
    percent: float


class DayCredits(TypedDict):
    """Answer, or a part of one, of `credits.get`."""

    date: str
    credits: float


class CreditTransaction(TypedDict):
    """Answer, or a part of one, of `credits.get`."""

    id: int
    at: str
    service: str
    amount: float
    balance_after: float
    type: str
    description: str
    workspace_id: str | None


class SetDefaultRequest(TypedDict):
    """Body, or a part of it, of `credits.set_default`."""

    level: NotRequired[Literal["namespace"]]
    quotaLimit: float
    overdraft: NotRequired[float]
    onOverdraftAction: NotRequired[Literal["block", "stop_workspaces"]]
    notificationThresholds: NotRequired[list[float] | None]
    service: str
    autoApply: NotRequired[bool]


class QuotaDefaultResponse(TypedDict):
    """Answer, or a part of one, of `credits.set_default`."""

    data: QuotaDefault


class QuotaDefault(TypedDict):
    """Answer, or a part of one, of `credits.set_default`."""

    level: str
    service: str
    quota_limit: float
    overdraft: float
    on_overdraft_action: str
    notification_thresholds: list[float]
    auto_apply: bool


class QuotaDefaultListResponse(TypedDict):
    """Answer, or a part of one, of `credits.defaults`."""

    data: list[QuotaDefault]


class DefaultNameRequest(TypedDict):
    """Body, or a part of it, of `credits.toggle_auto_apply`."""

    level: Literal["namespace"]
    service: str
