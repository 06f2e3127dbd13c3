"""Namespaces, what happens in them and what they use.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class CreateNamespaceRequest(TypedDict):
    """Body, or a part of it, of `namespaces.create`."""

    name: str
    description: NotRequired[str]
    type: NotRequired[Literal["default", "production", "staging", "development", "testing"]]
    metadata: NotRequired[dict[str, Any]]
    tags: NotRequired[list[str]]
    resource_limits: NotRequired[ResourceLimitsField]
    slug: NotRequired[str]
    isDefault: NotRequired[bool]


class ResourceLimitsField(TypedDict):
    """Body, or a part of it, of `namespaces.create`."""

    max_workspaces: NotRequired[int | None]
    max_vcpus: NotRequired[float | None]
    max_ram_mb: NotRequired[float | None]
    max_disk_gb: NotRequired[float | None]


class NamespaceResponse(TypedDict):
    """Answer, or a part of one, of `namespaces.create`."""

    data: Namespace


class Namespace(TypedDict):
    """Answer, or a part of one, of `namespaces.create`."""

    id: str
    client_id: str
    name: str
    slug: str
    description: str
    status: str
    type: str
    is_default: bool
    metadata: dict[str, Any]
    tags: list[str]
    resource_limits: NamespaceLimits
    created_at: str
    updated_at: str
    last_active_at: str | None


class NamespaceLimits(TypedDict):
    """Answer, or a part of one, of `namespaces.create`."""

    max_workspaces: int | None
    max_vcpus: float | None
    max_ram_mb: float | None
    max_disk_gb: float | None


class EnsureNamespaceRequest(TypedDict):
    """Body, or a part of it, of `namespaces.ensure`."""

    name: NotRequired[str]
    description: NotRequired[str]
    type: NotRequired[Literal["default", "production", "staging", "development", "testing"]]
    metadata: NotRequired[dict[str, Any]]
    tags: NotRequired[list[str]]
    resource_limits: NotRequired[ResourceLimitsField]
    slug: NotRequired[str]
    isDefault: NotRequired[bool]


class EnsuredNamespaceResponse(TypedDict):
    """Answer, or a part of one, of `namespaces.ensure`."""

    data: Namespace
    created: bool


class NamespaceObjectList(TypedDict):
    """Answer, or a part of one, of `namespaces.list`."""

    data: list[Namespace]
    pagination: dict[str, Any]


class UpdateNamespaceRequest(TypedDict):
    """Body, or a part of it, of `namespaces.update`."""

    name: NotRequired[str]
    description: NotRequired[str]
    type: NotRequired[Literal["default", "production", "staging", "development", "testing"]]
    metadata: NotRequired[dict[str, Any]]
    tags: NotRequired[list[str]]
    resource_limits: NotRequired[ResourceLimitsField]
    status: NotRequired[Literal["active", "inactive", "suspended"]]
    isDefault: NotRequired[bool]


class DeletedNamespaceResponse(TypedDict):
    """Answer, or a part of one, of `namespaces.delete`."""

    message: str
    movedWorkspaces: NotRequired[int]
    deletedWorkspaces: NotRequired[int]


class StoppedWorkspacesResponse(TypedDict):
    """Answer, or a part of one, of `namespaces.suspend`."""

    message: str
    stoppedWorkspaces: int


class ActivatedNamespaceResponse(TypedDict):
    """Answer, or a part of one, of `namespaces.activate`."""

    data: Namespace
    message: str


class NamespaceActivityObjectList(TypedDict):
    """Answer, or a part of one, of `namespaces.activity`."""

    data: list[NamespaceActivity]


class NamespaceActivity(TypedDict):
    """Answer, or a part of one, of `namespaces.activity`."""

    id: int
    namespace_id: str
    user_id: str
    action: str
    description: str
    changes: dict[str, Any]
    ip_address: str | None
    user_agent: str | None
    created_at: str


class NamespaceUsageResponse(TypedDict):
    """Answer, or a part of one, of `namespaces.usage`."""

    data: NamespaceUsage


class NamespaceUsage(TypedDict):
    """Answer, or a part of one, of `namespaces.usage`."""

    usage: list[NamespaceUsageItem]
    summary: list[NamespaceUsageSummary]
    quotas: list[QuotaRecord]


class NamespaceUsageItem(TypedDict):
    """Answer, or a part of one, of `namespaces.usage`."""

    date: str
    service: str
    total_requests: int
    total_credits: float


class NamespaceUsageSummary(TypedDict):
    """Answer, or a part of one, of `namespaces.usage`."""

    service: str
    total_requests: int
    total_credits: float


class QuotaRecord(TypedDict):
    """Answer, or a part of one, of `namespaces.usage`."""

    namespace: str
    service: str
    quota_limit: float | None
    quota_used: float
    overdraft: float
    on_overdraft_action: str
    notification_thresholds: list[float]
    last_threshold_fired: float | None


class UsageUnitsResponse(TypedDict):
    """Answer, or a part of one, of `namespaces.usage_units`."""

    namespace: str
    range: UnitsRange
    group_by: str
    buckets: list[UsageUnitsBucket]
    totals: UsageUnits
    data: UsageUnitsOfRange


UnitsRange = TypedDict("UnitsRange", {"from": "str", "to": "str"})


class UsageUnitsBucket(TypedDict):
    """Answer, or a part of one, of `namespaces.usage_units`."""

    cpu_time_minutes: float
    memory_gb_minutes: float
    disk_io_gb: float
    network_gb: float
    vcpu_hours: float
    gb_hours: float
    credits: float
    records: int
    timestamp: str


class UsageUnits(TypedDict):
    """Answer, or a part of one, of `namespaces.usage_units`."""

    cpu_time_minutes: float
    memory_gb_minutes: float
    disk_io_gb: float
    network_gb: float
    vcpu_hours: float
    gb_hours: float
    credits: float
    records: int


class UsageUnitsOfRange(TypedDict):
    """Answer, or a part of one, of `namespaces.usage_units`."""

    namespace: str
    range: UnitsRange
    group_by: str
    buckets: list[UsageUnitsBucket]
    totals: UsageUnits
