"""Network settings of a workspace.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict

from microvm.types.workspaces import Network


class NetworkResponse(TypedDict):
    """Answer, or a part of one, of `network.get`."""

    allow_internet: bool
    ingress_ports: list[int]
    egress_ports: list[int]
    egress: list[str]
    public_access: bool
    ingress: list[str]
    network: Network


class NetworkRequest(TypedDict):
    """Body, or a part of it, of `network.update`."""

    allow_internet: NotRequired[bool]
    egress: NotRequired[list[str]]
    egress_ports: NotRequired[list[int]]
    public_access: NotRequired[bool]
    ingress: NotRequired[list[str]]
    ingress_ports: NotRequired[list[int]]


class NetworkChangedResponse(TypedDict):
    """Answer, or a part of one, of `network.update`."""

    allow_internet: bool
    ingress_ports: list[int]
    egress_ports: list[int]
    egress: list[str]
    public_access: bool
    ingress: list[str]
    network: Network
    applied: bool
    problem: str | None
    accepted: NotRequired[bool]


class PatchedNetworkRequest(TypedDict):
    """Body, or a part of it, of `network.patch`."""

    allow_internet: NotRequired[bool]
    egress: NotRequired[list[str]]
    egress_ports: NotRequired[list[int]]
    public_access: NotRequired[bool]
    ingress: NotRequired[list[str]]
    ingress_ports: NotRequired[list[int]]
