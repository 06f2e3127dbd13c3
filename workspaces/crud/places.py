"""The place of a new workspace: its host and address, and the warm machine that it takes there, if one fits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from common.errors import VMUnavailable
from vmbackend.models import Host
from workspaces import warm_machines
from workspaces.models import WarmMachine, Workspace
from workspaces.placement import free_address, place_on_host, require_host_memory
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


def find_place(amount: Amount, image: str, *, may_be_warm: bool) -> Place:
    """Return the place of a warm machine if `may_be_warm` and one is ready, else a host with room and a free address.

    The host is locked to the end of the transaction. Raise VMUnavailable.
    """
    if not (may_be_warm and warm_machines.is_pool_on()):
        return _cold_place(amount)
    shape = warm_machines.shape_of(image, **columns_of(amount))
    place = _warm_place(amount, shape) or _cold_place(amount)
    warm_machines.record_request(shape, place.host, served=place.machine is not None)
    return place


def place_at(host: Host) -> Place:
    """Return a free address of the host, which is locked. Raise VMUnavailable."""
    return Place(host, free_address(host))


def _cold_place(amount: Amount) -> Place:
    return place_at(place_on_host(amount))


def _warm_place(amount: Amount, shape: PoolShape) -> Place | None:
    """Claim a machine. One whose host has no room for a workspace any more stays in the pool."""
    with suppress(VMUnavailable), transaction.atomic():
        machine = warm_machines.claim_machine(shape)
        if machine is None:
            return None
        if require_host_memory(machine.host, amount).takes_new:
            return Place(machine.host, machine.ip, machine)
        raise VMUnavailable  # it was drained before it was locked
    return None
