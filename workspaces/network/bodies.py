"""Public ports as responses show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.db.models import prefetch_related_objects

from edge.address import label, public_address
from workspaces.models import PublicPort, Workspace


def load_ports(rows: Iterable[Workspace]) -> None:
    """Read the public ports of all rows that have any, by one query."""
    prefetch_related_objects([row for row in rows if row.published_ports], "public_ports")


def ports_body(row: Workspace) -> list[dict[str, Any]]:
    """Every public port; without a query where there are none or `load_ports` has read them."""
    return [port_body(port) for port in row.public_ports.all()] if row.published_ports else []


def port_body(port: PublicPort) -> dict[str, Any]:
    first, address = label(port.slug, port.hash), public_address(settings.PUBLIC_URL)
    return {
        "port": port.port,
        "hash": port.hash,
        "domain": address.domain(first),
        "label": port.label,
        "url": address.url(first),
    }
