"""Placement: the host of a new machine, and its address there."""

from __future__ import annotations

import random
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from django.conf import settings
from django.db.models import FilteredRelation, Q, QuerySet, Sum
from django.utils import timezone

from common.errors import VMUnavailable
from common.hooks import Hook
from common.work.clock import is_to_come
from vmbackend.models import ALIVE_FOR, Host
from workspaces import warm_machines
from workspaces.models import ReleasedAddress, WarmMachine, Workspace
from workspaces.promised import HELD_SECONDS
from workspaces.quota import Amount
from workspaces.states import USES_RUNNING_POOL

# Addresses that belong to no workspace and must not be given to one yet.
held_addresses: Hook[[], set[str]] = Hook("placement.held_addresses")
# More than what is written: the database wrote the time after this statement's time, if both ran at once.
LONGEST_HOLD = timedelta(seconds=2 * HELD_SECONDS)


def place_on_host(wanted: Amount) -> Host:
    """Return the living host with the most uncommitted memory, locked to the end of the transaction.

    One query for all hosts, then the lock: the caller holds its account's row, so the number of hosts must not matter.
    Raise VMUnavailable with the reason.
    """
    hosts = {host: uncommitted_memory(host, promised) for host, promised in _living_hosts()}
    if not hosts:
        raise VMUnavailable("No host is available: no host can be reached, or none that can accepts new machines.")
    with_memory = {host: free for host, free in hosts.items() if free >= wanted.memory_mb}
    if not with_memory:
        raise VMUnavailable(
            f"No host has {wanted.memory_mb} MiB of memory to spare.",
            details={"resource": "memory_mb", "current": max(0, *hosts.values(), 0), "requested": wanted.memory_mb},
        )
    with_disk = [host for host in with_memory if free_disk(host) >= wanted.disk_size_mb]
    if not with_disk:
        raise VMUnavailable(
            f"No host has {wanted.disk_size_mb} MiB of disk to spare.",
            details={
                "resource": "disk_size_mb",
                "current": max(0, *(free_disk(host) for host in with_memory), 0),
                "requested": wanted.disk_size_mb,
            },
        )
    chosen = max(with_disk, key=lambda host: with_memory[host])
    if not require_host_memory(chosen, wanted).accepts_new:  # it was drained before it was locked
        return place_on_host(wanted)
    return chosen


def reserve_on_host(host: Host, wanted: Amount, number: int = 1) -> Host:
    """Return a host that `number` new machines of one size must be on, locked to the end of the transaction.

    Raise VMUnavailable with the resource that is missing in its details.
    """
    locked = require_host_memory(host, wanted * number)
    if not locked.accepts_new:
        raise VMUnavailable("The host of this snapshot accepts no new machines now.", details={"resource": "host"})
    if free_disk(locked) < wanted.disk_size_mb:
        raise VMUnavailable(
            f"The host of this snapshot has no {wanted.disk_size_mb} MiB of disk to spare.",
            details={
                "resource": "disk_size_mb",
                "current": max(0, free_disk(locked)),
                "requested": wanted.disk_size_mb,
            },
        )
    return locked


def has_room(wanted: Amount) -> bool:
    """Return whether a living host could take a machine of that size now. One query; nothing is locked."""
    return any(
        uncommitted_memory(host, promised) >= wanted.memory_mb and free_disk(host) >= wanted.disk_size_mb
        for host, promised in _living_hosts()
    )


def require_host_disk(host: Host) -> None:
    """Raise VMUnavailable unless the host's disk has room beyond its reserve: a machine that starts will write."""
    if free_disk(host) <= 0:
        raise VMUnavailable("The host's disk is nearly full; try again later.", details={"resource": "disk_size_mb"})


def require_host_memory(host: Host, wanted: Amount) -> Host:
    """Check that the host can start a machine of that size. Call it in a transaction, after the account's lock.

    Locks the host's row until the end of the transaction and sums again under the lock, so that two accounts never both
    take the last of its memory. Return the row as it is under the lock. Raise VMUnavailable.
    """
    if not host.is_alive:
        raise VMUnavailable(host.problem or "The host of this workspace cannot be reached; try again later.")
    locked = Host.objects.select_for_update(no_key=True).filter(pk=host.pk).first()
    if locked is None:
        raise VMUnavailable("The host of this workspace has been removed.")
    free = free_memory(host)
    if free < wanted.memory_mb:
        raise VMUnavailable(
            f"The host has no {wanted.memory_mb} MiB of memory to spare; try again later.",
            details={"resource": "memory_mb", "requested": wanted.memory_mb},
        )
    if warm_machines.is_pool_on():
        # Warm machines are promised to nobody: they have only what is left over.
        warm_machines.give_back_memory(host, wanted.memory_mb + warm_memory(host) - free)
    return locked


def warm_memory(host: Host) -> int:
    """Return the MiB of the host's warm machines. One query."""
    held = WarmMachine.objects.filter(host=host, state__in=warm_machines.HOLDS_MEMORY)
    return int(held.aggregate(total=Sum("memory_mb", default=0))["total"])


def _living_hosts() -> list[tuple[Host, int]]:
    """Return the hosts that accept new machines, each with the MiB promised to running machines; by name. One query."""
    living = Host.objects.filter(problem="", accepts_new=True, last_seen_at__gt=timezone.now() - ALIVE_FOR)
    return promised_memory(living.order_by("name"))


def promised_memory(hosts: QuerySet[Host]) -> list[tuple[Host, int]]:
    """Return each host with the MiB promised to its running machines. One query."""
    return [(host, host.promised) for host in _with_promised(hosts)]


def _with_promised(hosts: QuerySet[Host]) -> QuerySet[Any]:
    # The condition is part of the join, so that only the rows of the index `workspace_host` that count are read.
    running = FilteredRelation("workspaces", condition=Q(workspaces__status__in=USES_RUNNING_POOL))
    return hosts.annotate(running=running).annotate(promised=Sum("running__applied_memory_mb", default=0))


def free_memory(host: Host) -> int:
    """Return the MiB that are not promised to a running machine, after the host's own reserve. One query."""
    return uncommitted_memory(host, _with_promised(Host.objects.filter(pk=host.pk)).get().promised)


def uncommitted_memory(host: Host, promised: int) -> int:
    """Return the MiB of memory, overcommitted as configured, less the reserve and the MiB promised already."""
    return int(host.memory_mb * settings.ENV.memory_overcommit) - settings.ENV.memory_reserve_mb - promised


def free_disk(host: Host) -> int:
    """Return the MiB free on the host's disk, after its reserve. Disks are sparse: they occupy space as they fill."""
    return host.disk_free_mb


def free_address(host: Host) -> str:
    """Return an address of the host's subnet that no workspace has. If two concurrent transactions take the same
    address, the unique constraint refuses one.

    Raise VMUnavailable if the subnet is full.
    """
    network = IPv4Network(host.subnet)
    # The first address is the host's, the last is broadcast.
    first, last = int(network.network_address) + 2, int(network.broadcast_address) - 1
    taken = set(Workspace.objects.filter(host=host, ip__isnull=False).values_list("ip", flat=True))
    released = ReleasedAddress.objects.filter(is_to_come("held_until", LONGEST_HOLD), host=host)
    taken.update(released.values_list("ip", flat=True), *held_addresses())
    for _ in range(64):
        candidate = str(IPv4Address(random.randint(first, last)))  # noqa: S311 no secret
        if candidate not in taken:
            return candidate
    free = (str(IPv4Address(n)) for n in range(first, last + 1) if str(IPv4Address(n)) not in taken)
    address = next(free, None)
    if address is None:
        raise VMUnavailable("The host's subnet has no free address.")
    return address
