"""The only writers of hosts."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Case, F, FloatField, Q, Value, When
from django.db.models.functions import Cast, Extract, Now
from django.utils import timezone

from vmbackend.driver import Capacity
from vmbackend.errors import HostIsAlive, HostNameHeld, HostRemoved, HostStateRefused
from vmbackend.host_states import ALLOWED, HostState, lease_end, lease_stands
from vmbackend.labels import find_problem
from vmbackend.models import HOST_ID, Host, new_host_id


def find_host_id(*, name: str, claim: str) -> str:
    """Return the id of the host that this machine has joined as; else of the host of this name, or a fresh id, which
    the first report stores. Raise HostNameHeld, HostRemoved.
    """
    if joined := _joined_host_id():
        _require_joined(joined, claim)
        return joined
    require_host_name(name=name, claim=claim)
    return Host.objects.filter(name=name).values_list("pk", flat=True).first() or new_host_id()


def host_create(*, name: str, machine_id: str, subnet: str, address: str, arch: str, transfer_key: str = "") -> Host:
    """Return the row of a machine that joins; its vmhost reports there. Raise IntegrityError: something is taken."""
    return Host.objects.create(
        name=name,
        machine_id=machine_id,
        subnet=subnet,
        address=address,
        arch=arch,
        transfer_key=transfer_key,
        joined_at=Now(),
    )


def _joined_host_id() -> str:
    """Return the id of the host whose role this process has in the database; empty: it has the instance's own."""
    user = str(connection.settings_dict["USER"])
    return user if HOST_ID.fullmatch(user) else ""


def _require_joined(host_id: str, claim: str) -> None:
    """Raise HostRemoved if there is no such host any more, or if it is another machine's; HostNameHeld while a copy of
    this machine has its lease.
    """
    host = Host.objects.filter(pk=host_id).first()
    if host is None or host.machine_id not in ("", claim.partition(" ")[0]):
        raise HostRemoved
    require_host_name(name=host.name, claim=claim)


def host_hand_over(*, host_id: str, machine_id: str, address: str, transfer_key: str = "") -> None:
    """Give a host to another machine, or another address or key to its machine. Raise HostIsAlive while another one has
    its lease, IntegrityError if the machine is another host.
    """
    free = Host.objects.filter(pk=host_id).exclude(lease_stands() & ~Q(machine_id=machine_id))
    if not free.update(machine_id=machine_id, address=address, transfer_key=transfer_key):
        raise HostIsAlive("The machine of this host reports: stop it first, or wait until its lease of 30 s is over.")


def record_host_seen(
    *, host_id: str, name: str, claim: str, subnet: str, capacity: Capacity, address: str = "", transfer_key: str = ""
) -> None:
    """Store that this host's vmhost is alive and its hypervisor answers; creates the row of a new host.

    `address`: at which other hosts reach it; empty: it is alone. `transfer_key`: the public line of its SSH key.

    A machine that joined does not write these and its subnet: the control plane did.

    Raise HostNameHeld while another machine has the lease of the name, HostRemoved if this machine joined and is no
    host any more; nothing is stored then.
    """
    seen: dict[str, Any] = {
        "claim": claim,
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
        "clock_offset_seconds": Value(time.time(), FloatField()) - Cast(Extract(Now(), "epoch"), FloatField()),
        "problem": "",
    }
    if _joined_host_id():
        if not _store(host_id, claim, seen):
            _require_joined(host_id, claim)
        return
    seen |= {"subnet": subnet, "address": address, "transfer_key": transfer_key}
    first = {**seen, "id": host_id, "last_seen_at": Now(), "lease_since": Now(), "lease_until": lease_end()}
    if _store(host_id, claim, seen) or Host.objects.get_or_create(name=name, defaults=first)[1]:
        return
    require_host_name(name=name, claim=claim)
    raise HostNameHeld(f"Another process began as the host {name!r} at the same time.")


def record_host_problem(*, host_id: str, name: str, claim: str, problem: str) -> None:
    """Store that the host's vmhost is alive and its hypervisor does not answer, with the reason.

    Raise HostNameHeld as `record_host_seen`. A host that has no row yet gets none.
    """
    if not _store(host_id, claim, {"claim": claim, "problem": problem}):
        require_host_name(name=name, claim=claim)


def _store(host_id: str, claim: str, columns: dict[str, Any]) -> bool:
    """Store the row and renew its lease in one statement, so that of two machines one has the name. False if another
    one has it, or it has no row. The state, which is not the host's to write, is left alone.
    """
    free = Host.objects.exclude(_held_by_another(claim)).filter(pk=host_id)
    since = Case(When(lease_stands(), then=F("lease_since")), default=Now())
    return bool(free.update(**columns, last_seen_at=Now(), lease_since=since, lease_until=lease_end()))


def _held_by_another(claim: str) -> Q:
    """Return the condition by the database's clock, which wrote the times: by their own, two machines whose clocks
    differ would both have the name. A lease of a clock that was ahead until a boot holds nothing.
    """
    return ~Q(claim__in=["", claim]) & lease_stands()


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


def host_state_set(*, host_id: str, to: HostState) -> None:
    """Set the intent of staff, by one guarded statement. Columns that its vmhost stores are left alone.

    Raise HostStateRefused if the host may not go there from its state, HostIsAlive if one is given up whose lease
    stands.
    """
    hosts = Host.objects.filter(pk=host_id, state__in=ALLOWED[to])
    if to == HostState.GONE:
        hosts = hosts.exclude(lease_stands())
    told = {"is_silent": False} if to == HostState.GONE else {}
    if hosts.update(state=to, state_since=Now(), **told):
        return
    host = Host.objects.filter(pk=host_id).first()
    if host is not None and to == HostState.GONE and host.state in ALLOWED[to]:
        raise HostIsAlive(f"The host {host.name} reports: its lease stands. End its vmhost, or drain it.")
    raise HostStateRefused(f"A host that is {host.state if host else 'deleted'} cannot become {to}.")


def request_leave(*, host_id: str) -> None:
    """Ask the control plane to remove this machine's host. Called on its machine."""
    Host.objects.filter(pk=host_id).update(leaving_at=Now())


def refuse_leave(*, host_id: str) -> None:
    """Say to a machine that asked to leave that its host stays."""
    Host.objects.filter(pk=host_id).update(leaving_at=None)


def is_host_gone(host_id: str) -> bool:
    """Return whether the host was given up: one that comes back takes nothing until staff activate it."""
    return Host.objects.filter(pk=host_id, state=HostState.GONE).exists()


def announce_host(*, host_id: str, silent: bool) -> bool:
    """Note that a host was said to be silent, or back, in the caller's transaction. Return False if that was said
    already, or is not so any more.
    """
    hosts = Host.objects.filter(pk=host_id, is_silent=not silent).exclude(state=HostState.GONE)
    hosts = hosts.exclude(lease_stands()) if silent else hosts.filter(lease_stands())
    return bool(hosts.update(is_silent=silent))


def host_rename(*, host_id: str, name: str) -> None:
    """Give a host another name, also in its messages. Raise IntegrityError: another host has it."""
    Host.objects.filter(pk=host_id).update(name=name)


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
