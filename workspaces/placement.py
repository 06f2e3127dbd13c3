"""Which host gets a machine, and which address it has there."""

from __future__ import annotations

import random
from ipaddress import IPv4Address, IPv4Network

from django.conf import settings
from django.db.models import Sum
from django.utils import timezone

from common.errors import VMUnavailable
from common.hooks import Hook
from vmbackend.models import ALIVE_FOR, Host
from workspaces.models import Workspace
from workspaces.quota import Amount
from workspaces.states import USES_RUNNING_POOL

# Addresses that belong to no workspace and must not be given to one yet.
held_addresses: Hook[[], set[str]] = Hook("placement.held_addresses")


def place_on_host(wanted: Amount) -> Host:
    """The living host with the most uncommitted memory, held to the end of the transaction.

    Raises VMUnavailable with the reason.
    """
    alive = Host.objects.filter(problem="", accepts_new=True, last_seen_at__gt=timezone.now() - ALIVE_FOR)
    hosts = {host: free_memory(host) for host in alive}
    if not hosts:
        raise VMUnavailable("No host is available: the virtual machine backend cannot be reached.")
    roomy = {host: free for host, free in hosts.items() if free >= wanted.memory_mb}
    if not roomy:
        raise VMUnavailable(
            f"No host has {wanted.memory_mb} MiB of memory to spare.",
            details={
                "resource": "memory_mb",
                "current": max(0, *hosts.values(), 0),
                "requested": wanted.memory_mb,
            },
        )
    fitting = [host for host in roomy if free_disk(host) >= wanted.disk_size_mb]
    if not fitting:
        raise VMUnavailable(
            f"No host has {wanted.disk_size_mb} MiB of disk to spare.",
            details={
                "resource": "disk_size_mb",
                "current": max(0, *(free_disk(host) for host in roomy), 0),
                "requested": wanted.disk_size_mb,
            },
        )
    chosen = max(fitting, key=lambda host: roomy[host])
    require_room_on(chosen, wanted)
    return chosen


def require_room_on(host: Host, wanted: Amount) -> None:
    """Room to start an existing machine where its disk is. In a transaction, after the account's lock.

    The host is held to the transaction's end, so that two accounts never both take the last of it. Raises
    VMUnavailable.
    """
    if not host.is_alive:
        raise VMUnavailable(host.problem or "The host of this workspace cannot be reached; try again later.")
    Host.objects.select_for_update(no_key=True).filter(pk=host.pk).first()
    if free_memory(host) < wanted.memory_mb:
        raise VMUnavailable(f"The host has no {wanted.memory_mb} MiB of memory to spare; try again later.")


def free_memory(host: Host) -> int:
    """MiB not promised to a running machine, after the host's own reserve."""
    promised = Workspace.objects.filter(host=host, status__in=USES_RUNNING_POOL).aggregate(s=Sum("applied_memory_mb"))[
        "s"
    ]
    size = int(host.memory_mb * settings.ENV.memory_overcommit)
    return size - settings.ENV.memory_reserve_mb - (promised or 0)


def free_disk(host: Host) -> int:
    """MiB free on the host's disk, after its reserve. Disks are sparse: they take room as they fill."""
    return host.disk_free_mb - settings.ENV.disk_reserve_mb


def free_address(host: Host) -> str:
    """An address of the host's subnet that no workspace has. The unique constraint decides between two at once.

    Raises VMUnavailable where the subnet is full.
    """
    network = IPv4Network(host.subnet)
    # The first address is the host's, the last is broadcast.
    first, last = int(network.network_address) + 2, int(network.broadcast_address) - 1
    taken = set(Workspace.objects.filter(host=host, ip__isnull=False).values_list("ip", flat=True))
    taken.update(*held_addresses())
    for _ in range(64):
        candidate = str(IPv4Address(random.randint(first, last)))  # noqa: S311 no secret
        if candidate not in taken:
            return candidate
    free = (str(IPv4Address(n)) for n in range(first, last + 1) if str(IPv4Address(n)) not in taken)
    address = next(free, None)
    if address is None:
        raise VMUnavailable("The host's subnet has no free address.")
    return address
