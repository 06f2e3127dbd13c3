"""The fake host's state: small files in one directory, so that several processes see the same machines.

    domains/ID.json   definition and state        directories/ID/   identity, disk (a folder), boot log
    taps/ID           network port                firewall/ID       its network policy
    saved/ID          saved memory: "whole", "partial" or "spoilt"
    snapshots/ID/     snapshots (`copies.py`)
    events/           undelivered events          faults.json       injected failures    capacity.json   boot_id

Every file is replaced by an atomic rename, and every read-modify-write holds `lock`.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import count
from pathlib import Path
from typing import Any

from vmbackend.capabilities import HostCapabilities
from vmbackend.driver import (
    Boot,
    Capacity,
    Event,
    EventKind,
    MachineSpec,
    MachineState,
    StopReason,
    Workload,
    WorkloadRestart,
)
from vmbackend.policy import NetworkPolicy

# In a machine's folder: what its memory contains.
MEMORY_FILE = "memory"

_DEFAULT_CAPACITY = Capacity(
    arch="amd64",
    accelerated=False,
    cpus=16,
    memory_mb=65536,
    memory_free_mb=65536,
    disk_mb=1 << 20,
    disk_free_mb=1 << 20,
    boot_id="fake-boot",
)


@dataclass(frozen=True, slots=True)
class Domain:
    """One defined machine.

    `ready_at` (wall clock): when its guest reports ready, None while it is off; `ready_in`: seconds that remained until
    then when it was put to sleep. `resync_count`: number of resyncs since it last began to run.
    """

    spec: MachineSpec
    state: MachineState = MachineState.OFF
    ready_at: float | None = None
    ready_in: float = 0.0
    exit_code: int | None = None
    ended: StopReason = StopReason.CRASHED  # why its last process ended
    main_pid: int | None = None
    resync_count: int = 0


# An earlier version wrote others.
_FIELDS = frozenset(field.name for field in fields(Domain))


class FakeStore:
    """Reads and writes the fake host's files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._serial = count()
        self._held = threading.local()
        # Set by each event that this process queues, for the thread that delivers them.
        self.posted = threading.Event()
        for name in ("domains", "directories", "taps", "firewall", "saved", "snapshots", "events"):
            (root / name).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the store among threads and processes; reentrant within a thread."""
        if getattr(self._held, "depth", 0):
            yield
            return
        with (self.root / "lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            self._held.depth = 1
            try:
                yield
            finally:
                self._held.depth = 0

    def domain(self, machine_id: str) -> Domain | None:
        """Return the machine's definition, or None."""
        raw = self._load(self.root / "domains" / f"{machine_id}.json")
        if raw is None:
            return None
        parts = {"boot": _boot(raw["spec"]["boot"]), "network": NetworkPolicy.from_json(raw["spec"]["network"])}
        parts["image_changes"] = tuple(raw["spec"].get("image_changes", ()))
        raw["spec"] = MachineSpec(**raw["spec"] | parts)
        raw["state"] = MachineState(raw["state"])
        raw["ended"] = StopReason(raw.get("ended", StopReason.CRASHED))  # an earlier version wrote none
        return Domain(**{name: value for name, value in raw.items() if name in _FIELDS})

    def domains(self) -> dict[str, Domain]:
        """Return all machines by id."""
        names = [path.stem for path in (self.root / "domains").glob("*.json")]
        found = {name: self.domain(name) for name in names}
        return {name: domain for name, domain in found.items() if domain is not None}

    def save(self, domain: Domain, **changes: Any) -> Domain:
        """Write a definition with `changes`; return it."""
        changed = replace(domain, **changes)
        self.write(self.root / "domains" / f"{domain.spec.id}.json", json.dumps(asdict(changed)))
        return changed

    def directory(self, machine_id: str) -> Path:
        """Return the folder of the machine's disk and log."""
        return self.root / "directories" / machine_id

    def names(self, kind: str) -> frozenset[str]:
        """Return ids in one of the folders."""
        return frozenset(p.name for p in (self.root / kind).iterdir() if not p.name.startswith("."))

    def write(self, path: Path, text: str) -> None:
        """Replace a file atomically."""
        beside = path.parent / f".{path.name}.{os.getpid()}.{threading.get_ident()}"
        beside.write_text(text)
        beside.replace(path)

    def capacity(self) -> Capacity:
        """Return the configured size; free resources follow from the machines."""
        raw = self._load(self.root / "capacity.json")
        size = _DEFAULT_CAPACITY
        if raw is not None:
            size = replace(Capacity(**raw), capabilities=HostCapabilities(**raw.get("capabilities", {})))
        machines = self.domains().values()
        in_memory = [d for d in machines if d.state in (MachineState.RUNNING, MachineState.PAUSED)]
        asleep = [d for d in machines if d.state is MachineState.ASLEEP]
        used = sum(d.spec.disk_mb for d in machines) + sum(d.spec.memory_mb for d in asleep) + self._snapshots_mb()
        boot_id = self.root / "boot_id"
        return replace(
            size,
            memory_free_mb=size.memory_mb - sum(d.spec.memory_mb for d in in_memory),
            disk_free_mb=size.disk_mb - used,
            boot_id=boot_id.read_text() if boot_id.exists() else size.boot_id,
        )

    def snapshot(self, snapshot_id: str) -> Path:
        """Return the folder of a snapshot."""
        return self.root / "snapshots" / snapshot_id

    def _snapshots_mb(self) -> int:
        """Return what the snapshots occupy, in MiB."""
        manifests = [self._load(self.snapshot(name) / "manifest.json") for name in self.names("snapshots")]
        return sum(-(-raw["size_bytes"] >> 20) for raw in manifests if raw is not None)

    def saved_memory(self, machine_id: str) -> Path:
        """Return the file that represents the machine's saved memory."""
        return self.root / "saved" / machine_id

    def set_capacity(self, size: Capacity) -> None:
        """Set the host's capacity; its free figures are ignored."""
        self.write(self.root / "capacity.json", json.dumps(asdict(size)))

    def post(self, event: Event, *, due: float = 0.0) -> None:
        """Queue an event for the process that has the driver open, to be delivered at `due` or later."""
        name = f"{time.time_ns():020d}-{os.getpid()}-{next(self._serial):06d}"
        raw = {
            "machine_id": event.machine_id,
            "kind": event.kind,
            "reason": event.reason,
            "exit_code": event.exit_code,
            "due": due,
        }
        self.write(self.root / "events" / name, json.dumps(raw))
        self.posted.set()

    def due_events(self) -> list[tuple[Path, Event]]:
        """Return due events, oldest first; one that is not due delays the later ones of its machine."""
        due: list[tuple[Path, Event]] = []
        held: set[str] = set()
        for path in self._event_files():
            raw = self._load(path)
            if raw is None or raw["machine_id"] in held:
                continue
            if raw.pop("due") > time.time():
                held.add(raw["machine_id"])
                continue
            reason = None if raw["reason"] is None else StopReason(raw["reason"])
            event = Event(raw["machine_id"], EventKind(raw["kind"]), reason, raw["exit_code"])
            due.append((path, event))
        return due

    def has_events(self) -> bool:
        """Return whether there are undelivered events, due or not."""
        return bool(self._event_files())

    def drop_events(self, machine_id: str | None = None, *, only_future: bool = False) -> None:
        """Drop undelivered events, of one machine or of all."""
        for path in self._event_files():
            raw = self._load(path)
            if raw is None or machine_id not in (None, raw["machine_id"]):
                continue
            if not only_future or raw["due"] > time.time():
                path.unlink(missing_ok=True)

    def faults(self) -> list[dict[str, Any]]:
        """Return injected failures, oldest first."""
        raw = self._load(self.root / "faults.json")
        return [] if raw is None else list(raw["faults"])

    def save_faults(self, faults: list[dict[str, Any]]) -> None:
        """Replace the injected failures."""
        self.write(self.root / "faults.json", json.dumps({"faults": faults}))

    def _event_files(self) -> list[Path]:
        return sorted(p for p in (self.root / "events").iterdir() if not p.name.startswith("."))

    def _load(self, path: Path) -> dict[str, Any] | None:
        try:
            loaded: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        return loaded


def _boot(raw: dict[str, Any]) -> Boot:
    for name in ("cmd", "entrypoint"):
        raw[name] = None if raw[name] is None else tuple(raw[name])
    for name in ("ssh_keys", "directories"):
        raw[name] = tuple(raw.get(name, ()))  # an earlier version wrote no directories
    raw["workloads"] = tuple(_workload(workload) for workload in raw["workloads"])
    return Boot(**raw)


def _workload(raw: dict[str, Any]) -> Workload:
    return Workload(**raw | {"cmd": tuple(raw["cmd"]), "restart": WorkloadRestart(raw["restart"])})
