"""Placement: the host of a new machine, and its address there.

A host's room is what its own row says (`workspaces.promised`). A place is taken by one statement that locks the row if
it has the room still; the insert or the transition that follows counts it, in the same transaction. So no two take the
last room of a host, and no other host is locked. Locks are taken in one order: the account, the workspace, the host.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from django.conf import settings
from django.db.models import Case, Count, ExpressionWrapper, F, FloatField, Max, Q, QuerySet, Sum, Value, When
from django.db.models.functions import Cast

from common.errors import VMUnavailable
from common.hooks import Hook
from common.work.clock import is_to_come
from vmbackend.host_states import HostState
from vmbackend.models import Host, taking_new
from workspaces import warm_machines
from workspaces.host_away import require_live_host
from workspaces.models import Move, ReleasedAddress, WarmMachine, Workspace
from workspaces.models.move import MoveState
from workspaces.promised import HELD_SECONDS
from workspaces.quota import Amount

# Addresses that belong to no workspace and must not be given to one yet.
held_addresses: Hook[[], set[str]] = Hook("placement.held_addresses")
# More than what is written: the database wrote the time after this statement's time, if both ran at once.
LONGEST_HOLD = timedelta(seconds=2 * HELD_SECONDS)
# By the database's clock, which wrote them.
HELD = is_to_come("held_until", LONGEST_HOLD)
CANDIDATES = 3
# How often hosts are looked for again if all candidates were taken or drained meanwhile.
ROUNDS = 5
NO_HOST = "No host is available: no host can be reached, or none that can accepts new machines."
# The part of its memory by which a host that has the image counts as freer, or fuller, than it is.
IMAGE_BONUS = 0.1


@dataclass(frozen=True, slots=True)
class Wish:
    """Hosts that a machine may be on, and those that it should rather not be on.

    `labels`, `arch`, `capabilities`, `host`: on those only; `leaves`: not on this one. `apart`, `zones`,
    `wrong_arch`: hosts, zones and the architecture that are taken only if there is no other. `image`: the reference in
    full form; a host that has it is preferred a little.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    arch: str = ""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    host: str | None = None
    leaves: str | None = None
    apart: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    wrong_arch: str = ""
    image: str = ""

    @property
    def condition(self) -> Q:
        """Return the condition of the hosts that it may be on."""
        wanted = {
            "labels__contains": self.labels, "arch": self.arch, "capabilities__contains": self.capabilities,
            "pk": self.host,
        }  # fmt: skip
        found = Q(**{name: value for name, value in wanted.items() if value})
        # A host without a key of its own can copy nothing from another one.
        return found & ~Q(pk=self.leaves) & ~Q(transfer_key="") if self.leaves else found

    @property
    def last_resort(self) -> Any:
        """Return the expression that orders hosts by how little it should be on them."""
        cases = [When(arch=self.wrong_arch, then=3)] if self.wrong_arch else []
        cases += [When(pk__in=self.apart, then=2)] if self.apart else []
        cases += [When(zone__in=self.zones, then=1)] if self.zones else []
        return Case(*cases, default=0) if cases else Value(0)

    @property
    def bonus(self) -> Any:
        """Return the expression of the MiB by which a host counts as better."""
        if not self.image:
            return Value(0.0)
        return Case(When(images__contains=[self.image], then=F("memory_mb") * _float(IMAGE_BONUS)), default=_float(0))


ANYWHERE = Wish()


def place_on_host(wanted: Amount, wish: Wish = ANYWHERE) -> Host:
    """Return a host with room, locked to the end of the transaction: the freest, or the fullest, as PLATFORM_PLACEMENT
    says.

    One query for all hosts, one for the lock: the caller holds its account's row, so the number of hosts must not
    matter. Raise VMUnavailable with what is missing.
    """
    for _ in range(ROUNDS):
        candidates = find_candidates(wanted, wish)
        if not candidates:
            raise _refusal(wanted, wish)
        # A host that another transaction has locked is passed by first, so that creates at once do not queue for it.
        for passes in (True, False):
            for key in candidates:
                taken = _take(taking_new().filter(disk_free_mb__gte=wanted.disk_size_mb), key, wanted, passes=passes)
                if taken is not None:
                    return taken
    raise VMUnavailable("Other machines took the room of each host that had some; try again.", details={"missing": []})


def find_candidates(wanted: Amount, wish: Wish) -> list[str]:
    """Return the ids of the best hosts, the best one first. One query; nothing is locked."""
    best = F("room") if settings.ENV.placement == "spread" else -F("room")
    hosts = _with_room(taking_new().filter(wish.condition), wanted).filter(disk_free_mb__gte=wanted.disk_size_mb)
    ordered = hosts.annotate(resort=wish.last_resort, score=best + wish.bonus).order_by("resort", "-score", "name")
    return list(ordered.values_list("pk", flat=True)[:CANDIDATES])


def _room() -> Any:
    """Return the expression of `uncommitted_memory`, with fractions."""
    size = F("memory_mb") * _float(settings.ENV.memory_overcommit)
    return ExpressionWrapper(size - F("memory_promised_mb") - settings.ENV.memory_reserve_mb, output_field=FloatField())


def _float(value: float) -> Cast:
    # A literal would be a decimal, with which PostgreSQL computes several times slower.
    return Cast(Value(value), FloatField())


def _with_room(hosts: QuerySet[Host], wanted: Amount) -> QuerySet[Any]:
    return hosts.annotate(room=_room()).filter(room__gte=wanted.memory_mb)


def _take(hosts: QuerySet[Host], key: str, wanted: Amount, *, passes: bool = False) -> Host | None:
    """Lock a host if it is one of `hosts` and has the memory, also as it is under the lock; None otherwise. `passes`:
    also None if it would have to wait.

    Warm machines are promised to nobody: they have only what is left over.
    """
    locking = hosts.select_for_update(no_key=True, skip_locked=passes).filter(pk=key)
    host: Host | None = _with_room(locking, wanted).first()
    if host is not None and warm_machines.is_pool_on():
        needed = wanted.memory_mb + warm_memory(host) - uncommitted_memory(host)
        warm_machines.give_back_memory(host, needed)
    return host


def _refusal(wanted: Amount, wish: Wish) -> VMUnavailable:
    """Return why no host fits. One query."""
    fits = wish.condition
    roomy = fits & Q(room__gte=wanted.memory_mb)
    found = (
        taking_new()
        .annotate(room=_room())
        .aggregate(
            hosts=Count("pk"),
            fitting=Count("pk", filter=fits),
            memory=Max("room", filter=fits),
            disk=Max("disk_free_mb", filter=fits),
            roomy=Count("pk", filter=roomy),
            roomy_disk=Max("disk_free_mb", filter=roomy),
        )
    )
    if not found["hosts"]:
        return VMUnavailable(NO_HOST, details={"missing": [_missing("host", 1, 0)]})
    if not found["fitting"]:
        return _unfit(wish)
    lacking = []
    if not found["roomy"]:
        lacking.append(_missing("memory_mb", wanted.memory_mb, max(0, int(found["memory"]))))
    disk = found["roomy_disk"] if found["roomy"] else found["disk"]
    if disk < wanted.disk_size_mb:
        lacking.append(_missing("disk_size_mb", wanted.disk_size_mb, disk))
    if not lacking:
        return VMUnavailable("Room for it has just become free; try again.", details={"missing": []})
    return _short("No host has", lacking)


def _missing(what: str, wanted: object, best: object) -> dict[str, object]:
    """Return one of the reasons in the details of a refusal. `best`: the most that any host has; None: no such host."""
    return {"what": what, "wanted": wanted, "best": best}


def _unfit(wish: Wish) -> VMUnavailable:
    wanted = {"labels": wish.labels, "arch": wish.arch, "capabilities": wish.capabilities}
    lacking = [_missing(name, value, None) for name, value in wanted.items() if value]
    lacking += [_missing("near", 1, 0)] if wish.host else []
    return VMUnavailable("No host that accepts new machines is as `placement` asks.", details={"missing": lacking})


def _short(who: str, lacking: list[dict[str, Any]]) -> VMUnavailable:
    """Return the refusal for too little memory or disk. `lacking`: at least one."""
    first, named = lacking[0], {"memory_mb": "memory", "disk_size_mb": "disk"}
    details = {"resource": first["what"], "current": first["best"], "requested": first["wanted"], "missing": lacking}
    return VMUnavailable(f"{who} {first['wanted']} MiB of {named[first['what']]} to spare.", details=details)


def reserve_on_host(host: Host, wanted: Amount, number: int = 1, wish: Wish = ANYWHERE) -> Host:
    """Return a host that `number` new machines of one size must be on, locked to the end of the transaction.

    Raise VMUnavailable with what is missing in its details.
    """
    fitting = taking_new().filter(wish.condition, disk_free_mb__gte=wanted.disk_size_mb)
    taken = _take(fitting, host.pk, wanted * number)
    if taken is not None:
        return taken
    now = require_host_memory(host, wanted * number)
    if not taking_new().filter(pk=host.pk).exists():
        details = {"resource": "host", "missing": [_missing("host", host.name, None)]}
        raise VMUnavailable("The host of this snapshot accepts no new machines now.", details=details)
    if not Host.objects.filter(wish.condition, pk=host.pk).exists():
        raise _unfit(wish)
    raise _short("The host of this snapshot has no", [_missing("disk_size_mb", wanted.disk_size_mb, free_disk(now))])


def has_room(wanted: Amount) -> bool:
    """Return whether a living host could take a machine of that size now. One query; nothing is locked."""
    return bool(find_candidates(wanted, ANYWHERE))


def require_host_disk(host: Host) -> None:
    """Raise VMUnavailable unless machines may be started on the host, and its disk has room beyond its reserve: a
    machine that starts will write.
    """
    require_open_host(host)
    if free_disk(host) <= 0:
        raise VMUnavailable("The host's disk is nearly full; try again later.", details={"resource": "disk_size_mb"})


def require_host_memory(host: Host, wanted: Amount) -> Host:
    """Take the room for a machine of that size on its host. Call it in a transaction, after the locks of the account
    and of the workspace.

    Locks the host's row until the end of the transaction, in which the machine is counted. Return the row as it is
    under the lock. Raise VMUnavailable.
    """
    require_open_host(host)
    taken = _take(Host.objects.all(), host.pk, wanted)
    if taken is not None:
        return taken
    now = Host.objects.filter(pk=host.pk).first()
    if now is None:
        raise VMUnavailable("The host of this workspace has been removed.")
    raise _short("The host has no", [_missing("memory_mb", wanted.memory_mb, max(0, uncommitted_memory(now)))])


def require_open_host(host: Host) -> None:
    """Raise VMUnavailable unless machines may be started on the host."""
    require_live_host(host)
    if host.state == HostState.MAINTENANCE:
        raise VMUnavailable("The host of this workspace is in maintenance: nothing is started there now.")


def warm_memory(host: Host) -> int:
    """Return the MiB of the host's warm machines. One query."""
    held = WarmMachine.objects.filter(host=host, state__in=warm_machines.HOLDS_MEMORY)
    return int(held.aggregate(total=Sum("memory_mb", default=0))["total"])


def uncommitted_memory(host: Host) -> int:
    """Return the MiB of memory, overcommitted as configured, less the reserve and the MiB promised already."""
    size = int(host.memory_mb * settings.ENV.memory_overcommit)
    return size - int(settings.ENV.memory_reserve_mb) - host.memory_promised_mb


def free_disk(host: Host) -> int:
    """Return the MiB free on the host's disk, after its reserve. Disks are sparse: they occupy space as they fill, and
    what was promised beyond that is not taken off.
    """
    return host.disk_free_mb


def free_address(host: Host) -> str:
    """Return an address of the host's subnet that no workspace has, or had within HELD_SECONDS. If two concurrent
    transactions take the same address, the unique constraint refuses one. One query.

    Raise VMUnavailable if the subnet is full.
    """
    network = IPv4Network(host.subnet)
    # The first address is the host's, the last is broadcast.
    first, last = int(network.network_address) + 2, int(network.broadcast_address) - 1
    taken = _taken_addresses(host)
    for _ in range(64):
        candidate = str(IPv4Address(random.randint(first, last)))  # noqa: S311 no secret
        if candidate not in taken:
            return candidate
    free = (str(IPv4Address(n)) for n in range(first, last + 1) if str(IPv4Address(n)) not in taken)
    address = next(free, None)
    if address is None:
        raise VMUnavailable("The host's subnet has no free address.")
    return address


def is_address_free(host: Host, ip: str) -> bool:
    """Return whether `free_address` could return this address now."""
    return ip not in _taken_addresses(host)


def _taken_addresses(host: Host) -> set[str]:
    having = Workspace.objects.filter(host=host, ip__isnull=False).order_by()
    warm = WarmMachine.objects.filter(host=host)
    had = ReleasedAddress.objects.filter(HELD, host=host)
    coming = Move.objects.filter(target=host, state=MoveState.LIVE).order_by()
    parts: list[Any] = [rows.values_list("ip", flat=True) for rows in (warm, had)]
    parts.append(coming.values_list("address", flat=True))
    taken = having.values_list("ip", flat=True).union(*parts, all=True)
    return {str(ip) for ip in taken}.union(*held_addresses())
