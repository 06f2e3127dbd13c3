"""Quotas, policy and files of the CDN.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class CdnQuotaResponse(TypedDict):
    """Answer, or a part of one, of `cdn.quota_defaults`."""

    data: CdnQuota


class CdnQuota(TypedDict):
    """Answer, or a part of one, of `cdn.quota_defaults`."""

    cdn_max_bytes: int | None
    cdn_monthly_bytes: int | None
    policy: dict[str, Any] | None


class QuotaRequest(TypedDict):
    """Body, or a part of it, of `cdn.set_quota_defaults`."""

    cdn_max_bytes: NotRequired[int | None]
    cdn_monthly_bytes: NotRequired[int | None]
    policy: NotRequired[CdnPolicyRequest | None]


class CdnPolicyRequest(TypedDict):
    """Body, or a part of it, of `cdn.set_quota_defaults`."""

    allowedKinds: NotRequired[list[Literal["image", "video", "audio", "document", "other"]] | None]
    maxFileBytes: NotRequired[dict[str, int] | None]
    maxTotalBytes: NotRequired[int | None]
    monthlyUploadBytes: NotRequired[int | None]
    maxFiles: NotRequired[int | None]
    maxConcurrentUploads: NotRequired[int | None]
    maxWidth: NotRequired[int | None]
    maxHeight: NotRequired[int | None]
    maxDurationSeconds: NotRequired[float | None]
    maxVariants: NotRequired[int | None]
    tierMediaAccess: NotRequired[dict[str, list[Literal["image", "video", "audio", "document", "other"]]] | None]


class CdnNamespaceObjectList(TypedDict):
    """Answer, or a part of one, of `cdn.namespaces`."""

    data: dict[str, Any]


class CdnNamespace(TypedDict):
    """Answer, or a part of one, of `cdn.namespaces`."""

    namespace: str
    files: int
    active_bytes: int
    month_bytes: int
    limits: CdnLimits
    override: CdnQuota | None
    has_override: bool


class CdnLimits(TypedDict):
    """Answer, or a part of one, of `cdn.namespaces`."""

    cdn_max_bytes: int | None
    cdn_monthly_bytes: int | None
    maxFiles: int | None
    maxConcurrentUploads: int | None


class NamespaceQuotaRequest(TypedDict):
    """Body, or a part of it, of `cdn.set_quota`."""

    cdn_max_bytes: NotRequired[int | None]
    cdn_monthly_bytes: NotRequired[int | None]
    policy: NotRequired[CdnPolicyRequest | None]
    namespace: str


class CdnNamespaceQuotaResponse(TypedDict):
    """Answer, or a part of one, of `cdn.set_quota`."""

    data: CdnNamespaceQuota


class CdnNamespaceQuota(TypedDict):
    """Answer, or a part of one, of `cdn.set_quota`."""

    cdn_max_bytes: int | None
    cdn_monthly_bytes: int | None
    policy: dict[str, Any] | None
    namespace: str


class CdnPolicyResponse(TypedDict):
    """Answer, or a part of one, of `cdn.policy`."""

    data: CdnPolicy


class CdnPolicy(TypedDict):
    """Answer, or a part of one, of `cdn.policy`."""

    namespace: str | None
    effective: CdnEffective
    override: CdnQuota | None
    account: CdnQuota
    plan: CdnPlan


class CdnEffective(TypedDict):
    """Answer, or a part of one, of `cdn.policy`."""

    cdn_max_bytes: int | None
    cdn_monthly_bytes: int | None
    policy: dict[str, Any]
    sources: dict[str, str]
    clamped: list[str]


class CdnPlan(TypedDict):
    """Answer, or a part of one, of `cdn.policy`."""

    cdn_max_bytes: int | None
    cdn_monthly_bytes: int | None
    policy: dict[str, Any] | None
    code: str


class CdnUsageResponse(TypedDict):
    """Answer, or a part of one, of `cdn.usage`."""

    data: CdnUsage


class CdnUsage(TypedDict):
    """Answer, or a part of one, of `cdn.usage`."""

    namespace: str | None
    period: str
    ingest: CdnCounts
    active: CdnCounts
    trash: CdnCounts
    reserved: CdnCounts
    limits: CdnLimits


class CdnCounts(TypedDict):
    """Answer, or a part of one, of `cdn.usage`."""

    bytes: int
    files: int


class UploadTokenRequest(TypedDict):
    """Body, or a part of it, of `cdn.create_upload`."""

    namespace: NotRequired[str | None]
    filename: NotRequired[str]
    size: NotRequired[int]
    contentType: NotRequired[str]
    tag: NotRequired[str]
    tags: NotRequired[list[str]]
    variants: NotRequired[dict[str, VariantRequest]]
    metadata: NotRequired[dict[str, Any]]


class VariantRequest(TypedDict):
    """Body, or a part of it, of `cdn.create_upload`."""

    width: NotRequired[int]
    height: NotRequired[int]
    fit: NotRequired[Literal["contain", "cover", "fill"]]
    format: NotRequired[Literal["avif", "jpeg", "png", "webp"]]
    quality: NotRequired[int]


class UploadTokenResponse(TypedDict):
    """Answer, or a part of one, of `cdn.create_upload`."""

    token: str
    uploadUrl: str
    expiresAt: str
    fileId: str


class UserTokenResponse(TypedDict):
    """Answer, or a part of one, of `cdn.create_upload`."""

    token: str
    scope: str
    permissions: list[str]
    namespace: str | None
    expiresIn: str
    apiUrl: str


class CdnTagsResponse(TypedDict):
    """Answer, or a part of one, of `cdn.tags`."""

    data: CdnTags


class CdnTags(TypedDict):
    """Answer, or a part of one, of `cdn.tags`."""

    namespace: str | None
    tags: list[str]


class CdnStatsResponse(TypedDict):
    """Answer, or a part of one, of `cdn.stats`."""

    data: CdnStats


class CdnStats(TypedDict):
    """Answer, or a part of one, of `cdn.stats`."""

    totalFiles: int
    totalSize: int
    activeFiles: int
    activeSize: int
    uploadedFiles: int
    urlFiles: int


class CdnFileObjectList(TypedDict):
    """Answer, or a part of one, of `cdn.files`."""

    data: dict[str, Any]


class CdnFile(TypedDict):
    """Answer, or a part of one, of `cdn.files`."""

    id: str
    namespace: str | None
    filename: str
    kind: str
    content_type: str | None
    size: int
    width: int | None
    height: int | None
    duration_seconds: float | None
    tags: list[str]
    metadata: dict[str, Any]
    status: str
    error: CdnFileError | None
    url: str | None
    variants: list[CdnVariant]
    created_at: str
    trashed_at: str | None
    cdn_url: str | None
    mime_type: str | None
    tag: str | None
    is_deleted: bool


class CdnFileError(TypedDict):
    """Answer, or a part of one, of `cdn.files`."""

    code: str
    message: str
    details: NotRequired[dict[str, Any]]


class CdnVariant(TypedDict):
    """Answer, or a part of one, of `cdn.files`."""

    name: str
    url: str
    width: int
    height: int
    size: int


class CdnFileResponse(TypedDict):
    """Answer, or a part of one, of `cdn.file`."""

    file: CdnFile
    data: CdnFile


class CdnPurgedResponse(TypedDict):
    """Answer, or a part of one, of `cdn.empty_trash`."""

    accepted: NotRequired[bool]
    message: str
    deleted: int
