"""Route cache: the edge may reuse the machine of a port that is open to everyone until the current second ends.

Every change of a row on which a route depends invalidates it, so that on this host a route is never older than the row.
If that fails (the process dies right after its commit, or is on another host), the route expires with the second.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import transaction

from edge.addresses import label
from edge.route_cache import RouteCache, route_cache_folder

if TYPE_CHECKING:
    from workspaces.models import Workspace

logger = logging.getLogger(__name__)


@cache
def route_cache() -> RouteCache:
    """Return the route cache of this instance, in the folder that its Caddy reads."""
    return RouteCache(route_cache_folder(settings.STATE / "run"))


def held_addresses() -> set[str]:
    """Return the addresses to which the edge may still send requests for their former workspace."""
    return route_cache().cached_addresses()


def route_labels(workspace: Workspace) -> list[str]:
    """Return all names of a workspace's public ports."""
    ports = workspace.public_ports.order_by().values_list("slug", "hash")
    return [name for slug, hash_ in ports for name in port_labels(slug, hash_)]


def port_labels(slug: str, hash_: str) -> set[str]:
    """Return both names of a port."""
    return {hash_, label(slug, hash_)}


def invalidate_routes(workspace: Workspace, more: Collection[str] = ()) -> None:
    """Remove the routes of the workspace's ports and of the labels `more` from the cache, on commit."""
    transaction.on_commit(lambda: invalidate_routes_now(workspace, more), robust=True)


def invalidate_routes_now(workspace: Workspace, more: Collection[str] = ()) -> None:
    """Do what `invalidate_routes` does, for committed rows. File-system errors are logged, not raised."""
    try:
        route_cache().invalidate({*route_labels(workspace), *more})
    except FileNotFoundError:
        pass  # no instance has run here
    except OSError as exc:
        logger.warning("routes of %s are cached until the second ends: %s", workspace.pk, exc)
