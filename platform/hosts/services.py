"""Removal of hosts: by staff, or because their machine leaves."""

from __future__ import annotations

import logging

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError

from common.errors import NotFound, ValidationError
from common.host_access.roles import list_host_roles
from hosts.credentials import drop_credentials
from hosts.errors import HostInUse, NameTaken
from vmbackend.models import Host
from vmbackend.services import host_delete, host_describe, host_rename, refuse_leave
from workspaces.models import Workspace

logger = logging.getLogger(__name__)


def host_remove(*, host_id: str) -> None:
    """Delete a host that has no workspaces, and end its credentials: within seconds its machine can do nothing here.

    Raise HostInUse, NotFound. Dies after the row is gone: `remove_former_credentials` ends them.
    """
    try:
        with transaction.atomic():
            if not Host.objects.filter(pk=host_id).exists():
                raise NotFound("There is no such host.")
            host_delete(host_id=host_id)
    except ProtectedError as error:
        number = Workspace.objects.filter(host_id=host_id).count()
        raise HostInUse(details={"workspaces": number}) from error
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


def remove_former_credentials() -> int:
    """End credentials of hosts that are gone, as after a process that died between both. Return how many."""
    former = list_host_roles() - set(Host.objects.values_list("pk", flat=True))
    for host_id in former:
        drop_credentials(host_id)
    return len(former)
