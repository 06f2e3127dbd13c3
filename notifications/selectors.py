"""Reading send tokens and devices, as far as an actor reaches."""

from __future__ import annotations

from django.db.models import QuerySet

from accounts.actors import Actor
from accounts.scopes import Scope
from common.errors import NotFound
from notifications.models import Device, SendToken

NO_TOKEN = "There is no such send token."  # noqa: S105
MOST_DIGITS = 18  # of what the column holds


def visible_tokens(actor: Actor, workspace_id: str = "") -> QuerySet[SendToken]:
    """Return tokens of the workspaces that the actor sees, newest first. `workspace_id`: an id or a slug."""
    found = SendToken.objects.filter(account=actor.account)
    if actor.scope is Scope.NAMESPACE:
        found = found.filter(workspace__namespace_id=actor.namespace_id)
    if actor.scope is Scope.WORKSPACE:
        found = found.filter(workspace_id=actor.workspace_id)
    if not workspace_id:
        return found
    return found.filter(**{"workspace_id" if workspace_id.startswith("ws_") else "workspace__slug": workspace_id})


def get_token(actor: Actor, token_id: str) -> SendToken:
    """Raise NotFound, also for what is no number."""
    found = visible_tokens(actor).filter(pk=_number(token_id)).first()
    if found is None:
        raise NotFound(NO_TOKEN)
    return found


def visible_devices(actor: Actor) -> QuerySet[Device]:
    """Return the devices of the account, newest first, without their addresses."""
    return Device.objects.filter(account=actor.account).defer("address")


def get_device(actor: Actor, device_id: str) -> Device:
    """Return the device that its app named so, else the one with this number as its id. Raise NotFound."""
    known, found = visible_devices(actor), None
    if "\0" not in device_id:
        found = known.filter(device_id=device_id).first() or known.filter(public_id=_number(device_id)).first()
    if found is None:
        raise NotFound("There is no such device.")
    return found


def _number(text: str) -> int:
    """Return the number; 0, which no row has, for what is not a number."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else 0
