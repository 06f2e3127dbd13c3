"""Static pages, their releases and domains.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class PagesResponse(TypedDict):
    """Answer, or a part of one, of `pages.list`."""

    pages: list[Page]


class Page(TypedDict):
    """Answer, or a part of one, of `pages.list`."""

    id: str
    name: str
    slug: str
    domain: str
    url: str
    status: str
    disabled_reason: str | None
    namespace: str
    source_workspace_id: str
    exported_path: str
    release: int | None
    deployment: Deployment
    custom_domain: str | None
    created_at: str
    updated_at: str


class Deployment(TypedDict):
    """Answer, or a part of one, of `pages.list`."""

    state: str
    error: PageFailure | None


class PageFailure(TypedDict):
    """Answer, or a part of one, of `pages.list`."""

    code: str
    message: str


class CreatePageRequest(TypedDict):
    """Body, or a part of it, of `pages.create`."""

    workspace_id: str
    path: str
    name: NotRequired[str]
    slug: NotRequired[str]
    domain: NotRequired[str]


class DeployedPageResponse(TypedDict):
    """Answer, or a part of one, of `pages.create`."""

    page: Page
    skipped: NotRequired[list[SkippedEntry]]
    skipped_count: NotRequired[int]


class SkippedEntry(TypedDict):
    """Answer, or a part of one, of `pages.create`."""

    path: str
    reason: str


class PageResponse(TypedDict):
    """Answer, or a part of one, of `pages.get`."""

    page: Page


class UpdatePageRequest(TypedDict):
    """Body, or a part of it, of `pages.update`."""

    name: NotRequired[str]
    slug: NotRequired[str]


class DeployPageRequest(TypedDict):
    """Body, or a part of it, of `pages.deploy`."""

    workspace_id: NotRequired[str]
    path: NotRequired[str]


class ReleasesResponse(TypedDict):
    """Answer, or a part of one, of `pages.releases`."""

    releases: list[Release]


class Release(TypedDict):
    """Answer, or a part of one, of `pages.releases`."""

    release: int
    live: bool
    files: int
    bytes: int
    skipped: list[SkippedEntry]
    skipped_count: int
    source_workspace_id: str
    exported_path: str
    created_at: str


class RollbackRequest(TypedDict):
    """Body, or a part of it, of `pages.rollback`."""

    release: int


class ConnectDomainRequest(TypedDict):
    """Body, or a part of it, of `pages.connect_domain`."""

    domain: str
    include_www: NotRequired[bool]
    includeWww: NotRequired[bool]


class CheckSlugRequest(TypedDict):
    """Body, or a part of it, of `pages.check_slug`."""

    slug: str
    domain: NotRequired[str]


class CheckSlugResponse(TypedDict):
    """Answer, or a part of one, of `pages.check_slug`."""

    available: bool
    url: str
