"""What staff change about hosts: the only writers of tokens and of the rows of hosts that join or are removed."""

from __future__ import annotations

from django.db import transaction
from django.db.models import ProtectedError

from common.errors import NotFound
from hosts.credentials import drop_credentials
from hosts.errors import HostInUse
from vmbackend.models import Host
from vmbackend.services import host_delete
from workspaces.models import Workspace


def host_remove(*, host_id: str) -> None:
    """Delete a host that has no workspaces, and end its credentials: within seconds its machine can do nothing here.

    Raise HostInUse, NotFound. Dies after the row is gone: `remove_leftover_credentials` ends them.
    """
    try:
        with transaction.atomic():
            if not Host.objects.filter(pk=host_id).exists():
                raise NotFound("There is no such host.")
            host_delete(host_id=host_id)
    except ProtectedError as error:
        number = Workspace.objects.filter(host_id=host_id).count()
        raise HostInUse(details={"workspaces": number}) from error
    drop_credentials(host_id)
