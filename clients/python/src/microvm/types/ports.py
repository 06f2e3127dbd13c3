"""Public ports of a workspace.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

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


class WithdrawnResponse(TypedDict):
    """Answer, or a part of one, of `ports.withdraw`."""

    public_access: bool
    ports: list[PublicPort]
    public_ports: list[PublicPort]
    message: str
