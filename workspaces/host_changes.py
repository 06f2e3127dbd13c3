"""Changes of a host's state by staff, with the errors that they read."""

from __future__ import annotations

from common.errors import ValidationError
from vmbackend import services
from vmbackend.errors import HostIsAlive, HostStateRefused
from vmbackend.host_states import HostState
from vmbackend.models import Host
from workspaces import errors


def host_state_change(*, host_id: str, to: HostState) -> None:
    """Set what a host is for. Raise InvalidHostState, HostAlive."""
    try:
        services.host_state_set(host_id=host_id, to=to)
    except HostIsAlive as exc:
        raise errors.HostAlive(exc.message) from exc
    except HostStateRefused as exc:
        raise errors.InvalidHostState(exc.message) from exc


def host_give_up(*, host_id: str, confirm: str) -> None:
    """Give a host up: from this commit on its workspaces are lost, which the worker writes in batches.

    Raise ValidationError (`confirm` is not its name), InvalidHostState, HostAlive.
    """
    if confirm != Host.objects.filter(pk=host_id).values_list("name", flat=True).first():
        raise ValidationError(details={"confirm": ["confirm: give the name of the host."]})
    host_state_change(host_id=host_id, to=HostState.GONE)
