"""Public ports of a workspace.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from microvm.types.workspaces import PublicPort


class PublicPortsResponse(TypedDict):
    """Answer, or a part of one, of `ports.list`."""

    public_access: bool
    ports: list[PublicPort]
    public_ports: list[PublicPort]


class PublishRequest(TypedDict):
    """Body, or a part of it, of `ports.publish`."""

    label: NotRequired[str]
    slug: NotRequired[str]
    access: NotRequired[Literal["public", "private"]]
    port: int


class PublicPortResponse(TypedDict):
    """Answer, or a part of one, of `ports.publish`."""

    public_access: bool
    ports: list[PublicPort]
    public_ports: list[PublicPort]
    port: PublicPort
    public_port: PublicPort


class PatchedChangePortRequest(TypedDict):
    """Body, or a part of it, of `ports.change`."""

    label: NotRequired[str]
    slug: NotRequired[str]
    access: NotRequired[Literal["public", "private"]]


class WithdrawnResponse(TypedDict):
    """Answer, or a part of one, of `ports.withdraw`."""

    public_access: bool
    ports: list[PublicPort]
    public_ports: list[PublicPort]
    message: str


class PortLinksResponse(TypedDict):
    """Answer, or a part of one, of `ports.links`."""

    links: list[PortLink]


class PortLink(TypedDict):
    """Answer, or a part of one, of `ports.links`."""

    id: str
    url: str | None
    label: str
    expires_at: str
    created_at: str
    last_used_at: str | None


class LinkRequest(TypedDict):
    """Body, or a part of it, of `ports.create_link`."""

    ttl_seconds: int
    label: NotRequired[str]


class PortLinkResponse(TypedDict):
    """Answer, or a part of one, of `ports.create_link`."""

    link: PortLink
