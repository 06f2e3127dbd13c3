"""The place of a new workspace: its host and address, and the warm machine that it takes there, if one fits.

The owner may say something of the host in `placement` (wire contract, section 11).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q

from accounts.actors import Actor
from accounts.models import Account, Plan
from common.errors import NotFound, VMUnavailable
from namespaces.models import Namespace
from vmbackend.errors import ImageWrongPlatform
from vmbackend.images.reference import parse_reference
from vmbackend.models import Host, taking_new
from workspaces import warm_machines
from workspaces.errors import ResourceNotAllowed
from workspaces.models import Snapshot, WarmMachine, Workspace
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
from workspaces.selectors import get_workspace
from workspaces.states import NO_MACHINE, Status
from workspaces.usage.services import begin_usage
from workspaces.warm_machines import PoolShape

# At the end of a name: `web-1` and `web-2` are of one kind.
NUMBER = re.compile(r"[-_. ]?[0-9]+$")


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


def host_of_retry(account: Account, workspace: Workspace, amount: Amount, *, only: Host | None) -> Host:
    """Return the host of another attempt at a creation, locked: this one, or any. Raise VMUnavailable."""
    if only is None:
        return place_on_host(amount, wish_of_retry(account, workspace))
    require_host_disk(only)
    return require_host_memory(only, amount)


def only_host(workspace: Workspace, params: dict[str, Any]) -> Host | None:
    """Return the host that another attempt must be on: its own for its address, or that of the snapshot that it is made
    from, which may have moved since.
    """
    if workspace.static_network:
        return workspace.host
    kept = Snapshot.objects.filter(pk=params.get("snapshot", "")).select_related("host").first()
    return kept.host if kept is not None else None


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


def require_placement_allowed(plan: Plan, placement: Mapping[str, Any]) -> None:
    """Raise ResourceNotAllowed if a create has a `placement` and the plan forbids it."""
    if any(placement.values()) and not plan.allows_placement:
        message = f"The plan {plan.label} does not allow `placement`; leave it out."
        raise ResourceNotAllowed(message, details={"resource": "placement"})


def wish_of_create(actor: Actor, namespace: Namespace, placement: Mapping[str, Any], *, name: str, image: str) -> Wish:
    """Return what a create asks of its host. Raise NotFound (`near` is no workspace that the actor may see)."""
    near = None
    if placement.get("near"):
        try:
            near = get_workspace(actor, placement["near"]).host_id
        except NotFound:
            raise NotFound("placement.near: there is no such workspace.") from None
    others = Workspace.objects.filter(account=actor.account, namespace=namespace)
    return _wish(placement, others, name=name, image=image, host=near)


def wish_of_retry(account: Account, workspace: Workspace) -> Wish:
    """Return what another attempt at a creation asks of its host: the same, as far as what it names is still there.

    A host of the architecture for which the image was not made is tried again only if there is no other.
    """
    placement = workspace.placement
    near = Workspace.objects.filter(account=account, pk=placement["near"]) if placement.get("near") else None
    host = near.values_list("host_id", flat=True).first() if near is not None else None
    others = Workspace.objects.filter(account=account, namespace=workspace.namespace).exclude(pk=workspace.pk)
    is_wrong = workspace.host is not None and workspace.provisioning_error_code == ImageWrongPlatform.code
    wrong_arch = workspace.host.arch if workspace.host and is_wrong else ""
    return _wish(placement, others, name=workspace.name, image=workspace.image, host=host, wrong_arch=wrong_arch)


def _wish(placement: Mapping[str, Any], others: Any, *, name: str, image: str, **more: Any) -> Wish:
    apart, zones = _held(others, name) if placement.get("spread") else (frozenset[str](), frozenset[str]())
    return Wish(
        labels=placement.get("labels") or {},
        apart=apart,
        zones=zones if placement.get("spread") == "zone" else frozenset(),
        image=str(parse_reference(image)),
        **more,
    )


def _held(others: Any, name: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the hosts with workspaces of the same kind, and their zones. One query."""
    alike = f"^{re.escape(NUMBER.sub('', name) or name)}([-_. ]?[0-9]+)?$"
    kept = others.exclude(status__in=NO_MACHINE | {Status.DELETING}).filter(name__regex=alike)
    found = Host.objects.filter(pk__in=kept.values("host")).values_list("pk", "zone")
    hosts, zones = zip(*found, strict=True) if found else ((), ())
    return frozenset(hosts), frozenset(zones)
