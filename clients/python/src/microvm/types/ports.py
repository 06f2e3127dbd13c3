"""Public ports of a workspace.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from microvm.types.workspaces import PublicPort


class PublicPortsResponse(TypedDict):
    """Answer, or a part of one, of `ports.list`."""

    public_access: bool
    public_ports: list[PublicPort]


class PublishRequest(TypedDict):
    """Body, or a part of it, of `ports.publish`."""

    port: int
    label: NotRequired[str]
    slug: NotRequired[str]


class PublicPortResponse(TypedDict):
    """Answer, or a part of one, of `ports.publish`."""

    public_port: PublicPort
    public_access: bool
    public_ports: list[PublicPort]


class WithdrawnResponse(TypedDict):
    """Answer, or a part of one, of `ports.withdraw`."""

    message: str
    public_access: bool
    public_ports: list[PublicPort]
