"""The outcome of draining a host now. Nothing is locked or changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vmbackend.models import Host, taking_new
from workspaces.models import Workspace
from workspaces.placement import free_disk, uncommitted_memory
from workspaces.states import MOVABLE, NO_MACHINE, Status


@dataclass(slots=True)
class _Place:
    """A host that could take some, and what it would have left."""

    labels: dict[str, str]
    arch: str
    memory_mb: int
    disk_mb: int


def moves_outlook(host: Host) -> dict[str, Any]:
    """Return `{moves, fits_nowhere: [{workspace_id, missing}], replicated, lost}`. Two queries, however many
    workspaces there are.
    """
    places = [
        _Place(other.labels, other.arch, uncommitted_memory(other), free_disk(other))
        for other in taking_new().exclude(pk=host.pk)
    ]
    rows = Workspace.objects.filter(host=host).exclude(status__in=NO_MACHINE).order_by("-applied_memory_mb", "pk")
    columns = ("status", "applied_memory_mb", "applied_disk_size_mb", "placement", "static_network", "slug")
    found = list(rows.only(*columns))
    missing = {row.pk: reasons for row in found if (reasons := _take(row, host, places))}
    nowhere = [{"workspace_id": key, "missing": reasons} for key, reasons in missing.items()]
    return {"moves": len(found) - len(nowhere), "fits_nowhere": nowhere, "replicated": 0, "lost": len(found)}


def _take(row: Workspace, host: Host, places: list[_Place]) -> list[dict[str, Any]]:
    """Give the workspace the roomiest host that fits. Return what is missing if there is none."""
    if row.static_network:
        return [_missing("another address", True, False)]
    if row.status not in MOVABLE:
        return [_missing("status", sorted(MOVABLE), row.status)]
    labels = row.placement.get("labels") or {}
    fitting = [place for place in places if place.arch == host.arch and labels.items() <= place.labels.items()]
    if not fitting:
        return [_missing("host", 1, 0)]
    memory = row.applied_memory_mb if row.status == Status.RUNNING else 0
    roomy = [place for place in fitting if place.memory_mb >= memory and place.disk_mb >= row.applied_disk_size_mb]
    if not roomy:
        return _lacking(row, memory, fitting)
    best = max(roomy, key=lambda place: place.memory_mb)
    best.memory_mb -= memory
    best.disk_mb -= row.applied_disk_size_mb
    return []


def _lacking(row: Workspace, memory: int, fitting: list[_Place]) -> list[dict[str, Any]]:
    best = {"memory_mb": max(place.memory_mb for place in fitting), "disk_mb": max(place.disk_mb for place in fitting)}
    wanted = {"memory_mb": memory, "disk_mb": row.applied_disk_size_mb}
    lacking = [_missing(name, wanted[name], best[name]) for name in wanted if best[name] < wanted[name]]
    return lacking or [_missing("host with both", wanted, best)]


def _missing(what: str, wanted: object, best: object) -> dict[str, Any]:
    return {"what": what, "wanted": wanted, "best": best}
