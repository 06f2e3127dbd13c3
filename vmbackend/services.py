"""The only writers of hosts."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.utils import timezone

from vmbackend.driver import Capacity
from vmbackend.errors import HostNameHeld
from vmbackend.labels import find_problem
from vmbackend.models import ALIVE_FOR, Host, new_host_id


def find_host_id(*, name: str, claim: str) -> str:
    """Return the id of the host of this name, or a fresh one, which the first report stores. Raise HostNameHeld."""
    require_host_name(name=name, claim=claim)
    return Host.objects.filter(name=name).values_list("pk", flat=True).first() or new_host_id()


def record_host_seen(
    *, host_id: str, name: str, claim: str, subnet: str, capacity: Capacity, address: str = ""
) -> None:
    """Store that this host's vmhost is alive and its hypervisor answers; creates the row of a new host.

    `address`: at which other hosts reach it; empty: it is alone.

    Raise HostNameHeld if another machine has reported under the name within ALIVE_FOR; nothing is stored then.
    """
    seen: dict[str, Any] = {
        "claim": claim,
        "subnet": subnet,
        "address": address,
        "arch": capacity.arch,
        "accelerated": capacity.accelerated,
        "cpus": capacity.cpus,
        "memory_mb": capacity.memory_mb,
        "memory_free_mb": capacity.memory_free_mb,
        "disk_mb": capacity.disk_mb,
        "disk_free_mb": capacity.disk_free_mb,
        "snapshots": capacity.snapshots,
        "templates": [asdict(template) for template in capacity.templates],
        "capabilities": asdict(capacity.capabilities),
        "load": round(os.getloadavg()[0], 2),
        "version": str(settings.SPECTACULAR_SETTINGS["VERSION"]),
        "last_seen_at": Now(),
        "problem": "",
    }
    if _store(host_id, claim, seen) or Host.objects.get_or_create(name=name, defaults={"id": host_id, **seen})[1]:
        return
    require_host_name(name=name, claim=claim)
    raise HostNameHeld(f"Another process began as the host {name!r} at the same time.")


def record_host_problem(*, host_id: str, name: str, claim: str, problem: str) -> None:
    """Store that the host's vmhost is alive and its hypervisor does not answer, with the reason.

    Raise HostNameHeld as `record_host_seen`. A host that has no row yet gets none.
    """
    if not _store(host_id, claim, {"claim": claim, "last_seen_at": Now(), "problem": problem}):
        require_host_name(name=name, claim=claim)


def _store(host_id: str, claim: str, columns: dict[str, Any]) -> bool:
    """Store the row in one statement, so that of two machines one has the name. False if another one has it, or it has
    no row.
    """
    return bool(Host.objects.exclude(_held_by_another(claim)).filter(pk=host_id).update(**columns))


def _held_by_another(claim: str) -> Q:
    """Return the condition by the database's clock, which wrote the times: by their own, two machines whose clocks
    differ would both have the name. A time to come is one of a clock that was ahead until a boot, and holds nothing.
    """
    seen_lately = Q(last_seen_at__gt=Now() - ALIVE_FOR, last_seen_at__lt=Now() + ALIVE_FOR)
    return ~Q(claim__in=["", claim]) & seen_lately


def require_host_name(*, name: str, claim: str) -> None:
    """Raise HostNameHeld while another machine reports under the name."""
    seen_at = host_held_since(name=name, claim=claim)
    if seen_at is not None:
        raise HostNameHeld(
            f"Another machine runs the platform as the host {name!r}, and reported "
            f"{max(0, int((timezone.now() - seen_at).total_seconds()))} s ago. Give this one a name of its own with "
            f"PLATFORM_HOST_NAME; if it is to replace the other one, stop that one first."
        )


def host_held_since(*, name: str, claim: str) -> datetime | None:
    """Return when another machine last reported under the name; None: the name is free, or this machine's."""
    held = Host.objects.filter(_held_by_another(claim), name=name)
    return held.values_list("last_seen_at", flat=True).first()


def record_host_pool(*, host_id: str, pool: list[dict[str, Any]]) -> None:
    """Store the state of the host's warm pool, for staff."""
    Host.objects.filter(pk=host_id).update(pool=pool)


def record_host_orphans(*, host_id: str, orphans: list[dict[str, Any]]) -> None:
    """Store the orphans that the host keeps, for staff."""
    Host.objects.filter(pk=host_id).exclude(orphans=orphans).update(orphans=orphans)


def record_host_images(*, host_id: str, images: list[str]) -> None:
    """Store which images are ready on the host, for placement."""
    Host.objects.filter(pk=host_id).exclude(images=images).update(images=images)


def host_was_booted(*, host_id: str, boot_id: str) -> bool:
    """Return whether the host was booted since the stored boot. `record_host_boot` stores the new one."""
    return Host.objects.filter(pk=host_id).exclude(boot_id__in=["", boot_id]).exists()


def record_host_boot(*, host_id: str, boot_id: str) -> None:
    """Store the host's boot id."""
    Host.objects.filter(pk=host_id).exclude(boot_id=boot_id).update(boot_id=boot_id)


def host_update(*, host_id: str, accepts_new: bool) -> None:
    """Set whether the host takes new machines. Columns that its vmhost stores are left alone."""
    Host.objects.filter(pk=host_id).update(accepts_new=accepts_new)


def host_describe(*, host_id: str, labels: dict[str, str], zone: str) -> None:
    """Set labels and zone, which staff give; machines that are there already stay. Raise ValueError with a sentence."""
    if problem := find_problem(labels, zone):
        raise ValueError(problem)
    Host.objects.filter(pk=host_id).update(labels=labels, zone=zone)


@transaction.atomic
def host_delete(*, host_id: str) -> None:
    """Delete a host that is gone; one that is alive makes its row again.

    Raise ProtectedError while it has workspaces, also one that is being placed there: placement locks the row, too.
    """
    for host in Host.objects.select_for_update().filter(pk=host_id):
        host.delete()
