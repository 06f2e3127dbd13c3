"""Links to private ports: made, revoked, used, and ended when their time is over."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from common.database_errors import is_database_unavailable
from common.errors import DomainError
from common.secrets_at_rest import keyed_hash, new_secret
from common.times import iso
from common.work.clock import has_come, is_to_come
from edge.port_links import PARAMETER, PREFIX
from workspaces.errors import PortLinkLimit, PortLinkNotFound, PortNotPrivate
from workspaces.host_rpc import send_unanswered
from workspaces.models import PortLink, PublicPort, Workspace
from workspaces.network.services import TASK, lock_network, published_port
from workspaces.rows import lock_row, write_columns

logger = logging.getLogger(__name__)

MIN_SECONDS, MAX_SECONDS = 60, 604_800
# For `common.work.clock`: more than the longest time that a link is given.
LONGEST = timedelta(seconds=MAX_SECONDS + 3600)
LAST_USED_EVERY = timedelta(minutes=1)
EXPIRE_BATCH = 200
LIVING = is_to_come("expires_at", LONGEST)


def living_links(port: PublicPort) -> QuerySet[PortLink]:
    """Return the links that open the port, in the order in which they were made."""
    return port.links.filter(LIVING)


@transaction.atomic
def link_create(*, workspace: Workspace, actor: str, port: int, ttl_seconds: int, label: str = "") -> PortLink:
    """Return a link to a private port, with its `url`. Raise PublicPortNotFound, PortNotPrivate, PortLinkLimit,
    VmMissing, NotFound.
    """
    lock_network(workspace)
    found = published_port(workspace, port)
    if not found.is_private:
        raise PortNotPrivate
    current, most = living_links(found).count(), settings.ENV.port_links_max
    if current >= most:
        raise PortLinkLimit(details={"current": current, "max": most})
    secret = new_secret(PREFIX)
    link = PortLink.objects.create(
        port=found,
        account_id=workspace.account_id,
        token_hash=keyed_hash(secret),
        label=label,
        expires_at=timezone.now() + timedelta(seconds=ttl_seconds),
    )
    detail = f"Link {link.pk} opens port {port} until {iso(link.expires_at)}."
    write_columns(workspace, "port_link_created", detail, actor)
    link.url = f"{found.url}/?{PARAMETER}={secret}"
    return link


@transaction.atomic
def link_revoke(*, workspace: Workspace, actor: str, port: int, link_id: str) -> None:
    """End a link. Raise PublicPortNotFound, PortLinkNotFound (also if it has ended), NotFound (deleted)."""
    lock_row(workspace)
    if not living_links(published_port(workspace, port)).filter(pk=link_id).update(expires_at=Now()):
        raise PortLinkNotFound
    write_columns(workspace, "port_link_revoked", f"Link {link_id} opens port {port} no longer.", actor)


def link_use(link_id: str, last_used_at: datetime | None) -> None:
    """Record the use of a link, at most once a minute, also of many at once. A database that cannot write refuses no
    visitor for that.
    """
    now = timezone.now()
    if last_used_at is not None and abs(now - last_used_at) < LAST_USED_EVERY:
        return
    recent = Q(last_used_at__gt=now - LAST_USED_EVERY, last_used_at__lt=now + LAST_USED_EVERY)
    try:
        PortLink.objects.filter(Q(last_used_at__isnull=True) | ~recent, pk=link_id).update(last_used_at=now)
    except DatabaseError as exc:
        if not is_database_unavailable(exc):
            raise
        logger.warning("the use of link %s could not be recorded: %s", link_id, exc)


def links_expire() -> int:
    """Close the connections of links whose time is over, and remove their rows. Return how many.

    A visitor of the same port who has another link is disconnected, too, and comes back: a connection does not tell by
    which link it was opened. Links whose host cannot be told stay for the next call.
    """
    # In no order: by the order of an index the database would read all links that are alive.
    over = PortLink.objects.filter(has_come("expires_at", LONGEST)).order_by()
    found = dict(over.values_list("pk", "port_id")[:EXPIRE_BATCH])
    if not found:
        return 0
    ports = PublicPort.objects.filter(pk__in=set(found.values())).select_related("workspace__host")
    closed = _close_connections(ports.defer("workspace__env", "workspace__workloads"))
    return PortLink.objects.filter(pk__in=[key for key, port in found.items() if port in closed]).delete()[0]


def _close_connections(ports: QuerySet[PublicPort]) -> set[int]:
    """Let the hosts close the connections to these ports. Return the rows of which no host has to be asked again."""
    closed = set()
    for port in ports:
        workspace = port.workspace
        try:
            if workspace.host is not None:
                send_unanswered(workspace.host.queue, TASK, workspace.pk, [port.port])
        except DomainError as exc:
            logger.warning("connections to port %s of %s are not closed yet: %s", port.port, workspace.pk, exc.message)
            break
        closed.add(port.pk)
    return closed


def link_rows(hashes: Sequence[str]) -> QuerySet[PortLink, tuple[object, ...]]:
    """Return port, id, end and last use of the living links with these hashes, for a compiled query."""
    rows = PortLink.objects.filter(LIVING, token_hash__in=hashes).order_by()
    return rows.values_list("port_id", "pk", "expires_at", "last_used_at")
