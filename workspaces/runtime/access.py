"""Switching the runtime of a workspace on and off, and its tokens (wire contract, section 4b).

Each raises NotFound (deleted, or being deleted); nothing has changed then.
"""

from __future__ import annotations

import socket
from typing import NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from common.errors import NotFound
from edge.addresses import runtime_address
from workspaces.audit import record_activity
from workspaces.errors import RuntimeDisabled
from workspaces.models import Workspace
from workspaces.rows import lock_current, write_columns
from workspaces.runtime.tokens import make_raw_token
from workspaces.states import Status

COLUMNS = ("status", "runtime_enabled", "runtime_epoch")
SCHEME_PORTS = {"http": 80, "https": 443}


class RuntimePlace(NamedTuple):
    """The place where the runtime's address answers."""

    ip: str
    port: int


@transaction.atomic
def runtime_enable(*, workspace: Workspace, actor: str) -> Workspace:
    """Switch it on; one that is on stays as it is, with its tokens."""
    _lock(workspace)
    if not workspace.runtime_enabled:
        write_columns(workspace, "runtime_enabled", "The runtime was enabled.", actor, runtime_enabled=True)
    return workspace


@transaction.atomic
def runtime_disable(*, workspace: Workspace, actor: str) -> Workspace:
    """Switch it off; every token that was given out ends, and what it has opened."""
    _lock(workspace)
    if workspace.runtime_enabled:
        columns = {"runtime_enabled": False, "runtime_epoch": workspace.runtime_epoch + 1}
        write_columns(workspace, "runtime_disabled", "The runtime was disabled.", actor, **columns)
    return workspace


@transaction.atomic
def runtime_rotate(*, workspace: Workspace, actor: str) -> Workspace:
    """End every token that was given out, and what it has opened. Raise RuntimeDisabled."""
    _lock(workspace)
    require_enabled(workspace)
    epoch = workspace.runtime_epoch + 1
    return write_columns(
        workspace, "runtime_rotated", "The runtime's tokens were replaced.", actor, runtime_epoch=epoch
    )


@transaction.atomic
def runtime_give_raw_token(*, workspace: Workspace, actor: str) -> str:
    """Return a token without an end of its own, which leaves an entry of its giving. Raise RuntimeDisabled."""
    _lock(workspace)
    require_enabled(workspace)
    record_activity(workspace, "runtime_raw_token", "A token without an end was given out.", actor=actor)
    return make_raw_token(workspace)


def require_enabled(workspace: Workspace) -> None:
    """Raise RuntimeDisabled if the runtime is off."""
    if not workspace.runtime_enabled:
        raise RuntimeDisabled


def runtime_url(workspace: Workspace) -> str:
    """Return the address of a workspace's runtime."""
    return runtime_address(settings.ENV.runtime_url).url(workspace.pk)


def find_place(url: str) -> RuntimePlace:
    """Return where an address answers; the address is empty if its name leads nowhere for this host."""
    parts = urlsplit(url)
    port = parts.port or SCHEME_PORTS[parts.scheme]
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError:
        return RuntimePlace("", port)
    return RuntimePlace(str(found[0][4][0]), port)


def _lock(workspace: Workspace) -> None:
    """Exclude concurrent changes until this transaction ends."""
    lock_current(workspace, COLUMNS)
    if workspace.status == Status.DELETING:
        raise NotFound
