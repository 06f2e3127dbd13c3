"""Workspaces that are made from a snapshot: what they take over, and the checks before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from accounts.actors import Actor
from common.errors import NotFound, ValidationError
from workspaces import errors
from workspaces.images.choice import Choice
from workspaces.models import Operation, Snapshot, Workspace
from workspaces.models.operation import OperationKind
from workspaces.models.snapshot import SHOWN, SnapshotPurpose, SnapshotStatus
from workspaces.quota import Amount
from workspaces.snapshot_selectors import NOT_FOUND_MESSAGE, find_snapshot

SIZE_FIELDS = {"cpu_millis": "cpus", "memory_mb": "memory_mb", "disk_size_mb": "disk_size_mb"}


@dataclass(frozen=True, slots=True)
class Source:
    """A snapshot that a machine is made from. `memory`: whether it goes on from its memory; false: it boots.

    `is_cold_on_request`: the snapshot has memory, which the request gives up.
    """

    snapshot: Snapshot
    memory: bool
    is_cold_on_request: bool = False

    @property
    def params(self) -> dict[str, Any]:
        """Return the params of the operation that makes the machine."""
        return {
            "snapshot": self.snapshot.pk,
            "memory": self.memory,
            "fork": self.snapshot.purpose == SnapshotPurpose.FORK,
            "cold": self.is_cold_on_request,
        }

    @property
    def amount(self) -> Amount:
        """Return the sizes of the machine that the snapshot was made of."""
        return Amount(self.snapshot.cpu_millis, self.snapshot.memory_mb, self.snapshot.disk_size_mb)

    @property
    def chosen(self) -> Choice:
        """Return the image, with the catalog entry of the time at which the parent was made."""
        return Choice(self.snapshot.image, self.snapshot.catalog_snapshot)

    def columns(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns of a new workspace: `fields`, and what is the snapshot's."""
        kept = self.snapshot
        return {
            **kept.network,
            "workloads": kept.workloads,
            **({"cmd": kept.cmd} if self.memory or kept.purpose == SnapshotPurpose.FORK else {}),
            **{name: value for name, value in fields.items() if value or name not in ("workloads", "cmd")},
            "env": {**kept.env, **(fields.get("env") or {})},
            "image_digest": kept.image_digest,
            "preset": kept.preset,
            "source_snapshot_id": kept.pk,
        }


def source_of(actor: Actor, identifier: str, memory: bool | None, *, starts: bool, namespace: str | None) -> Source:
    """Return what a create names. Raise NotFound (also if another namespace is named), and what `use_snapshot` raises.

    A machine that is not to be started has no memory.
    """
    snapshot = find_snapshot(actor, identifier)
    if namespace is not None and namespace != snapshot.namespace_slug:
        raise NotFound(NOT_FOUND_MESSAGE)
    return use_snapshot(snapshot, memory if starts else False)


def use_snapshot(snapshot: Snapshot, memory: bool | None) -> Source:
    """Return the snapshot as it is asked for; None: as it has memory.

    Raise SnapshotNotReady, ValidationError (it has no memory), SnapshotIncompatible.
    """
    if snapshot.status != SnapshotStatus.READY:
        raise errors.SnapshotNotReady(f"The snapshot is {snapshot.status}.", details={"status": snapshot.status})
    if memory and not snapshot.memory:
        raise ValidationError(details={"memory": ["The snapshot has no memory."]})
    wanted = snapshot.memory if memory is None else memory
    if wanted and snapshot.differs:
        raise errors.SnapshotIncompatible(details={"differs": snapshot.differs})
    return Source(snapshot, wanted, is_cold_on_request=snapshot.memory and not wanted)


def source_sizes(source: Source, sizes: Mapping[str, int]) -> Amount:
    """Return the sizes of a new machine. Raise ValidationError for a smaller disk, and for others of vCPUs and memory
    with memory.
    """
    own = source.amount
    wanted = {name: sizes.get(name, getattr(own, name)) for name in SIZE_FIELDS}
    wrong: dict[str, list[str]] = {}
    if wanted["disk_size_mb"] < own.disk_size_mb:
        wrong["disk_size_mb"] = [f"disk_size_mb: the snapshot's disk has {own.disk_size_mb} MiB and never shrinks."]
    for name in ("cpu_millis", "memory_mb") if source.memory else ():
        if wanted[name] != getattr(own, name):
            field = SIZE_FIELDS[name]
            wrong[field] = [f"{field}: a machine that goes on from memory has the snapshot's."]
    if wrong:
        raise ValidationError(details=wrong)
    return Amount(**wanted)


def retried_params(workspace: Workspace) -> dict[str, Any]:
    """Return the params of another attempt at a creation. Raise SnapshotNotReady if what it was made from is gone."""
    if workspace.source_snapshot_id is None:
        return {}
    # Locked: its deletion waits until the attempt is queued, which keeps its files.
    held = Snapshot.objects.select_for_update(no_key=True).values_list("pk")
    if held.filter(SHOWN, pk=workspace.source_snapshot_id, status=SnapshotStatus.READY).first() is None:
        raise errors.SnapshotNotReady("The snapshot that this workspace was to be made from is gone: delete it.")
    creations = Operation.objects.filter(workspace=workspace, kind=OperationKind.CREATE)
    last = creations.order_by("-created_at", "-pk").first()
    names = ("snapshot", "memory", "fork", "cold")
    return {name: last.params[name] for name in names if name in last.params} if last else {}
