"""What the edge may know by itself for the rest of a second: which machine a port open to everybody leads to.

Every change of a row that an answer rests on calls `shut`, so that on this host an answer is never older than the row.
Where that fails (the process dies right after its commit, a process of another host), the second's end does it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import transaction

from edge.address import label
from edge.route_cache import RouteCache, route_cache_folder

if TYPE_CHECKING:
    from workspaces.models import Workspace

logger = logging.getLogger(__name__)


@cache
def route_cache() -> RouteCache:
    """Those of this instance, in the folder where its Caddy looks."""
    return RouteCache(route_cache_folder(settings.STATE / "run"))


def held_addresses() -> set[str]:
    """Addresses to which the edge may still send requests meant for their former workspace."""
    return route_cache().cached_addresses()


def route_labels(workspace: Workspace) -> list[str]:
    """All names of a workspace's public ports."""
    ports = workspace.public_ports.order_by().values_list("slug", "hash")
    return [name for slug, hash_ in ports for name in port_labels(slug, hash_)]


def port_labels(slug: str, hash_: str) -> set[str]:
    """Both names of a port."""
    return {hash_, label(slug, hash_)}


def invalidate_routes(workspace: Workspace, more: Collection[str] = ()) -> None:
    """From the commit of this transaction on each request to the workspace's ports, and to the labels `more`, is
    asked about anew."""
    transaction.on_commit(lambda: invalidate_routes_now(workspace, more), robust=True)


def invalidate_routes_now(workspace: Workspace, more: Collection[str] = ()) -> None:
    """As `shut`, for rows that are committed. Raises nothing of the file system."""
    try:
        route_cache().invalidate({*route_labels(workspace), *more})
    except FileNotFoundError:
        pass  # no instance has run here
    except OSError as exc:
        logger.warning("answers for %s are kept until the second ends: %s", workspace.pk, exc)
