"""Sizes of a workspace.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from microvm.types.workspaces import Resources


class ResourcesResponse(TypedDict):
    """Answer, or a part of one, of `resources.get`."""

    resources: SavedResources


class SavedResources(TypedDict):
    """Answer, or a part of one, of `resources.get`."""

    cpus: float
    memory_mb: int
    disk_size_mb: int
    cpu_config: CpuConfig
    status: str
    pending: NotRequired[PendingResources]


class CpuConfig(TypedDict):
    """Answer, or a part of one, of `resources.get`."""

    quota: str


class PendingResources(TypedDict):
    """Answer, or a part of one, of `resources.get`."""

    cpus: NotRequired[float]
    memory_mb: NotRequired[int]
    disk_size_mb: NotRequired[int]


class ResourcesRequest(TypedDict):
    """Body, or a part of it, of `resources.update`."""

    cpus: NotRequired[float]
    memory_mb: NotRequired[int]
    disk_size_mb: NotRequired[int]
    apply: NotRequired[bool]


class ResourcesUpdated(TypedDict):
    """Answer, or a part of one, of `resources.update`."""

    accepted: NotRequired[bool]
    updated: Resources
    relaunched: bool


class PatchedResourcesRequest(TypedDict):
    """Body, or a part of it, of `resources.patch`."""

    cpus: NotRequired[float]
    memory_mb: NotRequired[int]
    disk_size_mb: NotRequired[int]
    apply: NotRequired[bool]
