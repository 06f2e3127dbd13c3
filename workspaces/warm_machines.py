"""Rows of the warm pool: their only writer, in the caller's transaction.

A transaction that holds another lock skips the rows that it would have to wait for, so no two wait for each other.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone

from vmbackend.images.reference import parse_reference
from vmbackend.models import Host
from workspaces.models import WarmMachine, WarmRequest
from workspaces.models.warm_machine import WarmState

# How long a digest counts as the tag's. A host looks each minute.
DIGEST_FRESH_FOR = timedelta(seconds=150)
HOLDS_MEMORY = (WarmState.MAKING, WarmState.READY)


class PoolShape(NamedTuple):
    """The columns of `WarmShape`: a create takes a machine of the same."""

    image: str
    cpu_millis: int
    memory_mb: int
    disk_size_mb: int


def shape_of(image: str, cpu_millis: int, memory_mb: int, disk_size_mb: int) -> PoolShape:
    """Return the shape of a create from a valid reference."""
    return PoolShape(str(parse_reference(image)), cpu_millis, memory_mb, disk_size_mb)


def is_pool_on() -> bool:
    """Return whether the settings allow a pool."""
    return settings.ENV.pool_memory_mb > 0 and settings.ENV.pool_machines > 0


def claim_machine(shape: PoolShape, hosts: QuerySet[Host]) -> WarmMachine | None:
    """Remove the row of a ready machine on one of `hosts` and return it; None if there is none. The caller inserts a
    workspace of its id.

    If several transactions claim at once, each gets another machine, or none; they do not wait for each other.
    """
    ready = WarmMachine.objects.select_for_update(skip_locked=True, of=("self",)).filter(
        **shape._asdict(),
        state=WarmState.READY,
        checked_at__gt=timezone.now() - DIGEST_FRESH_FOR,
        host__in=hosts.filter(disk_free_mb__gte=shape.disk_size_mb),
    )
    machine = ready.select_related("host").order_by("made_at").first()
    if machine is None or not WarmMachine.objects.filter(pk=machine.pk, state=WarmState.READY).delete()[0]:
        return None
    return machine


def record_request(shape: PoolShape, host: Host, *, served: bool) -> None:
    """Record a create, from which the host sizes its pool."""
    WarmRequest.objects.create(host=host, served=served, **shape._asdict())


def give_back_memory(host: Host, needed_mb: int) -> None:
    """Retire machines of the host until `needed_mb` of memory are given back, or none is left; the newest ones first.

    The host's row is locked. A machine that is being claimed is left to its workspace.
    """
    if needed_mb <= 0:
        return
    held = WarmMachine.objects.select_for_update(skip_locked=True, of=("self",)).filter(host=host)
    for key, memory_mb in held.filter(state__in=HOLDS_MEMORY).order_by("-made_at").values_list("pk", "memory_mb"):
        if needed_mb <= 0:
            break
        needed_mb -= memory_mb if retire_machine(key) else 0


def insert_machine(host: Host, ip: str, shape: PoolShape, *, digest: str, kit: str, claim: str) -> WarmMachine:
    """Insert a machine that this process is about to make. The host's row is locked, so the address stays free."""
    return WarmMachine.objects.create(host=host, ip=ip, image_digest=digest, kit=kit, claim=claim, **shape._asdict())


def record_ready(machine: WarmMachine, **columns: Any) -> bool:
    """Let creates take a machine. Return False if it was retired meanwhile."""
    made = WarmMachine.objects.filter(pk=machine.pk, claim=machine.claim, state=WarmState.MAKING)
    return bool(made.update(state=WarmState.READY, made_at=timezone.now(), **columns))


def record_digest(host_id: str, image: str, digest: str) -> None:
    """Record that the tag has this digest now."""
    same = WarmMachine.objects.filter(host_id=host_id, image=image, image_digest=digest)
    same.update(checked_at=timezone.now())


def retire_machine(key: str) -> bool:
    """Retire a machine that nobody has claimed, for good. Return False if it has been claimed, or retired before."""
    held = WarmMachine.objects.filter(pk=key, state__in=HOLDS_MEMORY)
    return bool(held.update(state=WarmState.RETIRING))


def retire_machines(host_id: str) -> int:
    """Retire all machines of a host. Return how many."""
    held = WarmMachine.objects.filter(host_id=host_id, state__in=HOLDS_MEMORY)
    return held.update(state=WarmState.RETIRING)


def retire_alike(host_id: str, shape: PoolShape) -> int:
    """Retire the machines of a shape that wait on a host. Return how many."""
    held = WarmMachine.objects.filter(host_id=host_id, state=WarmState.READY, **shape._asdict())
    return held.update(state=WarmState.RETIRING)


def retire_others(host_id: str, image: str, digest: str) -> int:
    """Retire the machines of a host that were made of another digest of a tag. Return how many."""
    held = WarmMachine.objects.filter(host_id=host_id, image=image, state__in=HOLDS_MEMORY)
    return held.exclude(image_digest=digest).update(state=WarmState.RETIRING)


def delete_retired(key: str) -> None:
    """Delete the row of a retired machine, of which nothing is left on the host."""
    WarmMachine.objects.filter(pk=key, state=WarmState.RETIRING).delete()


def remove_requests(host_id: str, age: timedelta) -> None:
    """Remove the requests that are older."""
    WarmRequest.objects.filter(host_id=host_id, at__lt=timezone.now() - age).delete()
