"""Removal of hosts: by staff, or because their machine leaves."""

from __future__ import annotations

import logging

from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import ProtectedError, Q
from redis import RedisError

from common.errors import NotFound, ValidationError
from common.host_access.redis_users import list_redis_users
from common.host_access.roles import list_host_roles
from hosts.credentials import drop_credentials
from hosts.errors import HostInUse, NameTaken
from vmbackend.models import Host
from vmbackend.services import host_delete, host_describe, host_rename, refuse_leave
from workspaces.models import Move, Workspace
from workspaces.models.move import MoveState

logger = logging.getLogger(__name__)

# The most workspaces that a message names.
MOST_NAMED = 5


def host_remove(*, host_id: str) -> None:
    """Delete a host that has no workspaces, and end its credentials: within seconds its machine can do nothing here.

    Raise HostInUse, NotFound. Dies after the row is gone: `remove_former_credentials` ends them.
    """
    try:
        with transaction.atomic():
            if not Host.objects.filter(pk=host_id).exists():
                raise NotFound("There is no such host.")
            if Move.objects.filter(Q(source=host_id) | Q(target=host_id), state=MoveState.LIVE).exists():
                raise HostInUse("Workspaces are moving from or to the host.", details={"workspaces": 0})
            host_delete(host_id=host_id)
    except ProtectedError as error:
        there = Workspace.objects.filter(host_id=host_id)
        names = ", ".join(there.order_by("-id").values_list("name", flat=True)[:MOST_NAMED])
        message = f"The host has workspaces: move or delete them first ({names})."
        raise HostInUse(message, details={"workspaces": there.count()}) from error
    transaction.on_commit(lambda: drop_credentials(host_id), robust=True)


@transaction.atomic
def host_change(
    *, host: Host, name: str | None = None, labels: dict[str, str] | None = None, zone: str | None = None
) -> None:
    """Change what is given. Raise NameTaken, ValidationError; nothing has changed then."""
    try:
        if name is not None:
            host_rename(host_id=host.pk, name=name)
        if labels is not None or zone is not None:
            host_describe(
                host_id=host.pk,
                labels=host.labels if labels is None else labels,
                zone=host.zone if zone is None else zone,
            )
    except IntegrityError as error:
        raise NameTaken(details={"name": name}) from error
    except ValueError as error:
        raise ValidationError(details={"labels": [str(error)]}) from error


def remove_leaving_hosts() -> int:
    """Remove the hosts whose machines ask to leave; one that has a workspace stays. Return how many are removed."""
    removed = 0
    for host in Host.objects.filter(leaving_at__isnull=False, joined_at__isnull=False):
        try:
            host_remove(host_id=host.pk)
        except HostInUse:
            refuse_leave(host_id=host.pk)
        except NotFound:
            continue  # staff were first
        else:
            logger.info("the host %s (%s) has left", host.name, host.pk)
            removed += 1
    return removed


def cut_off(*, host_id: str) -> None:
    """End a host's credentials, also of one that has workspaces and reports: its machine was taken over, say. Its lease
    is over soon, and staff can give it up. Only a token for this host lets a machine in again.
    """
    transaction.on_commit(lambda: drop_credentials(host_id), robust=True)


def remove_former_credentials() -> int:
    """End credentials of hosts that are gone, as after a process that died between both. Return how many."""
    former = list_host_roles() | _redis_users()
    former -= set(Host.objects.values_list("pk", flat=True))
    return sum(_was_dropped(host_id) for host_id in former)


def _redis_users() -> set[str]:
    try:
        return list_redis_users()
    except RedisError as error:
        logger.warning("users of former hosts in Redis were not looked for: %s", error)
        return set()


def _was_dropped(host_id: str) -> bool:
    try:
        drop_credentials(host_id)
    except (RedisError, DatabaseError) as error:  # the others must not wait for it
        logger.warning("credentials of the former host %s stay for now: %s", host_id, error)
        return False
    return True
