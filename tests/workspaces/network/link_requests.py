"""Requests to private ports, as the edge asks about them, by what a visitor shows."""

from __future__ import annotations

from typing import Any

from edge.port_links import PARAMETER
from workspaces.models import PublicPort
from workspaces.network.links import link_create

UNKNOWN = f"plk_{'A' * 43}"


def secret_of(port: PublicPort, **fields: Any) -> str:
    """The secret of a new link to the port."""
    made = link_create(workspace=port.workspace, actor="t", port=port.port, **{"ttl_seconds": 3600, **fields})
    return str(made.url).partition(f"{PARAMETER}=")[2]


def name_of(port: PublicPort) -> str:
    return f"{port.hash}.localhost"


def by_cookie(*secrets: str, name: str = "port_link") -> dict[str, str]:
    return {"X_Edge_Cookie": "; ".join(["theirs=1", *(f"{name}={secret}" for secret in secrets), "more=2"])}


def by_bearer(secret: str) -> dict[str, str]:
    return {"X_Edge_Authorization": f"Bearer {secret}"}


def by_address(secret: str, method: str = "GET", target: str = "/") -> dict[str, str]:
    return {"X_Edge_Address": f"{method} {target}?{PARAMETER}={secret}"}
