"""The place of a new workspace: its host and address, and the warm machine that it takes there, if one fits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q

from accounts.models import Account
from common.errors import VMUnavailable
from vmbackend.models import Host, taking_new
from workspaces import warm_machines
from workspaces.crud.wishes import wish_of_retry
from workspaces.models import WarmMachine, Workspace
from workspaces.placement import (
    ANYWHERE,
    Wish,
    free_address,
    place_on_host,
    require_host_disk,
    require_host_memory,
    reserve_on_host,
)
from workspaces.quota import Amount, columns_of
from workspaces.usage.services import begin_usage
from workspaces.warm_machines import PoolShape


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a new workspace. `machine`: the warm one that is the workspace's from now on."""

    host: Host
    ip: str
    machine: WarmMachine | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Return the columns of the new row."""
        found = {"host": self.host, "ip": self.ip}
        if self.machine is None:
            return found
        row = self.machine
        known = {"ssh_host_key": row.ssh_host_key, "control_port": row.control_port, "image_digest": row.image_digest}
        return {"id": row.pk, **known, **found}

    def take_machine(self, workspace: Workspace) -> dict[str, bool]:
        """Begin the workspace's usage where its machine is now. Return the parameters of its creation."""
        if self.machine is None:
            return {}
        begin_usage(workspace, self.machine.counters)
        return {"warm": True}


def find_place(amount: Amount, image: str, wish: Wish = ANYWHERE, *, may_be_warm: bool) -> Place:
    """Return the place of a warm machine if `may_be_warm` and one is ready, else a host with room and a free address.

    Both are as `wish` says; a machine that waits on a host which is the last resort is left there.

    The host is locked to the end of the transaction. Raise VMUnavailable.
    """
    if not (may_be_warm and warm_machines.is_pool_on()):
        return _cold_place(amount, wish)
    shape = warm_machines.shape_of(image, **columns_of(amount))
    place = _warm_place(amount, shape, wish) or _cold_place(amount, wish)
    warm_machines.record_request(shape, place.host, served=place.machine is not None)
    return place


def place_at(host: Host) -> Place:
    """Return a free address of the host, which is locked. Raise VMUnavailable."""
    return Place(host, free_address(host))


def host_of_retry(account: Account, workspace: Workspace, amount: Amount, *, stays: bool) -> Host:
    """Return the host of another attempt at a creation, locked; if it `stays`, its own. Raise VMUnavailable."""
    if not (stays and workspace.host):
        return place_on_host(amount, wish_of_retry(account, workspace))
    require_host_disk(workspace.host)
    return require_host_memory(workspace.host, amount)


def _cold_place(amount: Amount, wish: Wish) -> Place:
    return place_at(place_on_host(amount, wish))


def _warm_place(amount: Amount, shape: PoolShape, wish: Wish) -> Place | None:
    """Claim a machine. One whose host has no room for a workspace any more stays in the pool."""
    with suppress(VMUnavailable), transaction.atomic():
        hosts = taking_new().filter(wish.condition).exclude(Q(pk__in=wish.apart) | Q(zone__in=wish.zones))
        machine = warm_machines.claim_machine(shape, hosts)
        if machine is None:
            return None
        # Raises, too, if it was drained before it was locked.
        return Place(reserve_on_host(machine.host, amount), machine.ip, machine)
    return None
