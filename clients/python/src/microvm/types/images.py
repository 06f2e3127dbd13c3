"""The catalog of images.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class CatalogResponse(TypedDict):
    """Answer, or a part of one, of `images.list`."""

    images: list[CatalogEntry]
    categories: list[CatalogCategory]


class CatalogEntry(TypedDict):
    """Answer, or a part of one, of `images.list`."""

    id: str
    label: str
    desc: str
    category: str
    image: str
    base_os: BaseOs
    logo: str | None
    color: str | None
    recommended: bool
    includes: list[str]
    env: list[CatalogEnvItem]
    preset: str | None
    base_image: str | None
    revision: int
    software: list[CatalogSoftware]
    vm_defaults: CatalogSizes
    capabilities: list[str]
    desktop: CatalogDesktop | None


class BaseOs(TypedDict):
    """Answer, or a part of one, of `images.list`."""

    family: str
    distribution: str
    version: str


class CatalogEnvItem(TypedDict):
    """Answer, or a part of one, of `images.list`."""

    key: str
    desc: str
    required: bool
    default: NotRequired[str]


class CatalogSoftware(TypedDict):
    """Answer, or a part of one, of `images.list`."""

    name: str
    version: str


class CatalogSizes(TypedDict):
    """Answer, or a part of one, of `images.list`."""

    cpus: NotRequired[float]
    memory_mb: NotRequired[int]
    disk_size_mb: NotRequired[int]


class CatalogDesktop(TypedDict):
    """Answer, or a part of one, of `images.list`."""

    installable: bool
    prepared: bool
    vm_defaults: CatalogSizes
    minimum_resources: CatalogSizes


class CatalogCategory(TypedDict):
    """Answer, or a part of one, of `images.list`."""

    id: str
    label: str
