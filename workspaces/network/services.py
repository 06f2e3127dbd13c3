"""Changing the network policy and public ports of a workspace: first the row, then its host.

Each raises VmMissing (destroyed) and NotFound (deleted concurrently); nothing has changed then.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from accounts.models import Account
from common.commits import call_after_commit
from common.errors import DomainError
from workspaces import route_cache
from workspaces.errors import PublicPortLimit, PublicPortNotFound, VmMissing
from workspaces.host_away import LATER, is_away
from workspaces.host_rpc import call, send_unanswered
from workspaces.models import PublicPort, Workspace
from workspaces.models.public_port import Access
from workspaces.models.workspace import POLICY_COLUMNS
from workspaces.rows import lock_current, write_columns
from workspaces.states import Status

logger = logging.getLogger(__name__)

MAX_PORTS = 32
TASK = "workspaces.tasks.apply_network"
COLUMNS = (*POLICY_COLUMNS, "public_access", "ingress", "published_ports", "status")


@dataclass(frozen=True, slots=True)
class WrittenPort:
    """A published port as it is now. `closes`: it became private, so its open connections must be closed."""

    port: PublicPort
    is_new: bool = False
    closes: bool = False


@transaction.atomic
def network_update(*, workspace: Workspace, actor: str, changes: dict[str, Any]) -> list[int]:
    """Write validated fields. Return the public ports whose open connections must be closed."""
    lock_network(workspace)
    new = {name: value for name, value in changes.items() if getattr(workspace, name) != value}
    if not new:
        return []
    closing = {"public_access", "ingress"} & new.keys()
    stale = {"network_stale": True} if set(POLICY_COLUMNS) & new.keys() else {}
    write_columns(workspace, "network_changed", f"Changed: {', '.join(sorted(new))}.", actor, **new, **stale)
    route_cache.invalidate_routes(workspace)
    return [port.port for port in workspace.public_ports.all()] if closing else []


@transaction.atomic
def port_publish(
    *,
    workspace: Workspace,
    actor: str,
    port: int,
    label: str | None = None,
    slug: str | None = None,
    access: str | None = None,
) -> WrittenPort:
    """Publish a port; label, slug and access of a published one are changed.

    The first port enables `public_access`; later ones leave it unchanged. Raise PublicPortLimit.
    """
    lock_network(workspace)
    fields = {"label": label, "slug": slug, "access": access}
    given = {name: value for name, value in fields.items() if value is not None}
    found = workspace.public_ports.filter(port=port).first()
    if found is not None:
        return _port_write(workspace, actor, found, given)
    if workspace.published_ports >= MAX_PORTS:
        raise PublicPortLimit(details={"current": workspace.published_ports, "max": MAX_PORTS})
    made = PublicPort.objects.create(workspace=workspace, account_id=workspace.account_id, port=port, **given)
    opened = {} if workspace.published_ports else {"public_access": True}
    columns = {**opened, "published_ports": workspace.published_ports + 1}
    detail = f"Port {port} has a public address{', for visitors with a link' if made.is_private else ''}."
    write_columns(workspace, "port_published", detail, actor, **columns)
    return WrittenPort(made, is_new=True)


@transaction.atomic
def port_change(*, workspace: Workspace, actor: str, port: int, changes: dict[str, str]) -> WrittenPort:
    """Change label, slug and access of a published port; a value that is not given stays. Raise PublicPortNotFound."""
    lock_network(workspace)
    return _port_write(workspace, actor, published_port(workspace, port), changes)


def _port_write(workspace: Workspace, actor: str, found: PublicPort, changes: dict[str, str]) -> WrittenPort:
    former = found.access
    route_cache.invalidate_routes(workspace, route_cache.port_labels(found.slug, found.hash))
    for name, value in changes.items():
        setattr(found, name, value)
    found.save(update_fields=list(changes))
    if found.access == former:
        return WrittenPort(found)
    _access_changed(workspace, actor, found)
    return WrittenPort(found, closes=found.is_private)


def _access_changed(workspace: Workspace, actor: str, found: PublicPort) -> None:
    """Record who may open the port from now on. Links to a public port end: nothing would keep their secrets from its
    program.
    """
    if found.access == Access.PUBLIC:
        found.links.all().delete()
    who = "visitors with a link only" if found.is_private else "everyone"
    write_columns(workspace, "port_access_changed", f"Port {found.port} is open to {who}.", actor)


def published_port(workspace: Workspace, port: int) -> PublicPort:
    """Return a published port. Raise PublicPortNotFound."""
    found = workspace.public_ports.filter(port=port).first()
    if found is None:
        raise PublicPortNotFound
    return found


@transaction.atomic
def port_withdraw(*, workspace: Workspace, actor: str, port: int) -> None:
    """Unpublish a port. Its address is never reused: publishing it again makes a new one. Raise PublicPortNotFound."""
    lock_network(workspace)
    found = published_port(workspace, port)
    route_cache.invalidate_routes(workspace, route_cache.port_labels(found.slug, found.hash))
    found.delete()
    left = workspace.public_ports.count()
    write_columns(workspace, "port_withdrawn", f"Port {port} is no longer public.", actor, published_ports=left)


def account_ports_follow(account: Account) -> None:
    """Follow the activation or deactivation of an account (`accounts.hooks`), in its transaction. After the commit the
    routes of its public ports are forgotten; if the account is inactive, open connections to them are closed.

    Nothing waits for a host, which may be down. If the process or the host dies before, a route ends with its second,
    and a connection by itself.
    """
    if not account.is_active:
        call_after_commit(_account_ports_close, account)


def _account_ports_close(account: Account) -> None:
    published = Workspace.objects.filter(account=account, published_ports__gt=0).select_related("host")
    rows = list(published.defer("env", "workloads").prefetch_related("public_ports"))
    for workspace in rows:
        route_cache.invalidate_routes_now(workspace)
    try:
        for workspace in rows:
            if workspace.status == Status.RUNNING and workspace.host is not None:
                ports = [port.port for port in workspace.public_ports.all()]
                send_unanswered(workspace.host.queue, TASK, workspace.pk, ports)
    except DomainError as exc:
        logger.warning("connections to ports of %s are not closed: %s", account.pk, exc.message)


def apply_on_host(workspace: Workspace, close: Collection[int] = ()) -> str | None:
    """Make the host apply the row, outside any transaction. Return None, or why it is applied later.

    A host that cannot be reached applies it when it is back.
    """
    if workspace.host is None:
        return "There is no machine yet; it applies when one is created."
    if is_away(workspace):
        return LATER
    try:
        return call(workspace, TASK, list(close)).decode() or None
    except DomainError as exc:
        logger.warning("the network policy of %s is not applied yet: %s", workspace.pk, exc.message)
        return f"{exc.message} It applies as soon as the host is back."


def lock_network(workspace: Workspace) -> None:
    """Exclude concurrent changes of its network until this transaction ends. Raise NotFound, VmMissing."""
    lock_current(workspace, COLUMNS)
    if workspace.status == Status.DESTROYED:
        raise VmMissing
