"""The only writers of hosts."""

from __future__ import annotations

import os

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from vmbackend.driver import Capacity
from vmbackend.models import Host


def record_host_seen(*, name: str, subnet: str, capacity: Capacity) -> None:
    """Store that this host's vmhost is alive and its hypervisor answers; creates the row of a new host."""
    Host.objects.update_or_create(
        name=name,
        defaults={
            "subnet": subnet,
            "arch": capacity.arch,
            "accelerated": capacity.accelerated,
            "cpus": capacity.cpus,
            "memory_mb": capacity.memory_mb,
            "memory_free_mb": capacity.memory_free_mb,
            "disk_mb": capacity.disk_mb,
            "disk_free_mb": capacity.disk_free_mb,
            "snapshots": capacity.snapshots,
            "load": round(os.getloadavg()[0], 2),
            "version": str(settings.SPECTACULAR_SETTINGS["VERSION"]),
            "last_seen_at": timezone.now(),
            "problem": "",
        },
    )


def record_host_problem(*, name: str, problem: str) -> None:
    """Store that the host's vmhost is alive and its hypervisor does not answer, with the reason."""
    Host.objects.filter(name=name).update(last_seen_at=timezone.now(), problem=problem)


def record_host_boot(*, name: str, boot_id: str) -> bool:
    """Store the host's boot id; returns whether the host was booted since the stored one."""
    known = Host.objects.filter(name=name).exclude(boot_id="").exclude(boot_id=boot_id)
    rebooted = bool(known.update(boot_id=boot_id))
    Host.objects.filter(name=name, boot_id="").update(boot_id=boot_id)
    return rebooted


def host_update(*, name: str, accepts_new: bool) -> None:
    """Whether the host takes new machines. What its vmhost stores is left alone."""
    Host.objects.filter(name=name).update(accepts_new=accepts_new)


@transaction.atomic
def host_delete(*, name: str) -> None:
    """Delete a host that is gone; one that is alive makes its row again.

    Raises ProtectedError while it has workspaces, also one that is being placed there: placement locks the row, too.
    """
    for host in Host.objects.select_for_update().filter(name=name):
        host.delete()
