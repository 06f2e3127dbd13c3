"""A machine's directory on the host and the small record in it.

    <machines_dir>/<id>/machine.json   network and disk as provisioned (below); the firewall is rebuilt from it
                        status.json    what the guest reported since its last start
                        data.raw       the writable disk; after a snapshot data-*.qcow2, above layers that never change
                        memory         saved memory of a sleeping machine, complete or partial; memory.seal its checksum
                        memory.moved   what the saved memory is, if it is a snapshot's (`moved_memory.py`)
                        memory.woken   that memory, once the machine has woken from it, until it is removed
                        memory.managed   memory that nothing loads, of a machine that was an orphan (`orphans.py`)
                        config         the boot configuration, 0600
                        host_key       private key of the guest's control port, 0600; host_key.pub its public line
                        boot.log       console output, of limited size
                        events.out console.out requests.out (and .in)   named pipes to QEMU
                        agent          QEMU's socket of the guest agent
                        late_clock     exists until the clock of a machine that was loaded slowly is set again
                        held           exists while programs may be frozen for memory that this process saves
                        loading        exists while a template is loaded that has not taken the machine's identity
                        unassigned     exists while the machine belongs to nobody (`Driver.assign`)
                        resolver/      with a policy for some names only: configuration and pid file of its dnsmasq

`confinement.py` says who may read what. A directory without machine.json remains if the process dies during the first
preparation: `delete` removes it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from vmbackend.driver import StopReason
from vmbackend.libvirt.disks import write_atomically
from vmbackend.machines_folder import UNASSIGNED
from vmbackend.policy import NetworkPolicy
from vmbackend.trees import remove_tree

MACHINE_ID = re.compile(r"[a-z0-9_]{1,40}")
# Of machines whose record is being changed. A thread may enter one twice.
_LOCKS = tuple(threading.RLock() for _ in range(64))
_PIPES = tuple(f"{channel}.{way}" for channel in ("events", "console", "requests") for way in ("in", "out"))


@dataclass(frozen=True, slots=True)
class Layer:
    """One file of a disk, in the folder of its owner. `format`: raw or qcow2."""

    file: str
    format: str


@dataclass(frozen=True, slots=True)
class Chain:
    """The files of a machine's disk, the lowest first; the last is written, the others never change.

    `taken`: the snapshot whose content it has, until the machine's first start. `file_system_mb`: that of a file system
    which the next cold start makes as large as the disk; 0 if it is.
    """

    layers: tuple[Layer, ...] = (Layer("data.raw", "raw"),)
    taken: str = ""
    file_system_mb: int = 0

    @property
    def top(self) -> Layer:
        return self.layers[-1]

    @property
    def is_flat(self) -> bool:
        """Return whether it is one raw file that shares nothing."""
        return len(self.layers) == 1 and self.top.format == "raw"

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        """Raise TypeError, KeyError."""
        return cls(**{**raw, "layers": tuple(Layer(**layer) for layer in raw["layers"])})


@dataclass(frozen=True, slots=True)
class Record:
    """The state of a machine that survives a restart of host and driver, besides the domain's XML."""

    id: str
    ip: str
    image: str
    cpus: float
    memory_mb: int
    disk_mb: int
    network: NetworkPolicy
    # The generation of the policy. It changes when names are removed, which ends connections that they allowed.
    generation: int = 1
    chain: Chain = Chain()
    epoch: int = 1

    def generation_for(self, policy: NetworkPolicy) -> int:
        """Return the generation of the next policy."""
        grows = bool(self.network.names) and set(self.network.names) <= set(policy.names)
        return self.generation if grows or policy == self.network else (self.generation + 1) % (1 << 31)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        """Raise TypeError, KeyError. Records of earlier versions contain `allow_internet` only, or no chain."""
        if "allow_internet" in raw:
            raw["network"] = {"allow_internet": raw.pop("allow_internet")}
        raw["network"] = NetworkPolicy.from_json(raw["network"])
        raw["chain"] = Chain.from_json(raw["chain"]) if "chain" in raw else Chain()
        return cls(**raw)


@dataclass(frozen=True, slots=True)
class Status:
    """Status of the last start. `running` is set before the process starts and cleared when its stop was reported.

    `end`: why the process ended; None while it runs, until its stop is processed, and if no driver saw it.
    """

    running: bool = False
    ready: bool = False
    exit_code: int | None = None
    end: StopReason | None = None

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        """Raise TypeError, ValueError. An earlier version stored no `end`."""
        end = dict(raw).get("end")
        return cls(**{**raw, "end": StopReason(end) if end else None})


class MachineDir:
    """The files of one machine."""

    def __init__(self, machines_dir: Path, machine_id: str) -> None:
        self.id = machine_id
        self.path = machines_dir / machine_id
        self.record = self.path / "machine.json"
        self.data_disk = self.path / "data.raw"
        self.memory = self.path / "memory"
        self.memory_checksum = self.path / "memory.seal"
        self.managed_memory = self.path / "memory.managed"
        self.config = self.path / "config"
        self.host_key = self.path / "host_key"
        self.public_key = self.path / "host_key.pub"
        self.boot_log = self.path / "boot.log"
        self.agent_socket = self.path / "agent"
        self.events_pipe = self.path / "events"
        self.console_pipe = self.path / "console"
        self.resolver = self.path / "resolver"
        self.requests_pipe = self.path / "requests"
        self.loading = self.path / "loading"
        self.moved = self.path / "memory.moved"
        self.woken = self.path / "memory.woken"
        self.late_clock = self.path / "late_clock"
        self.held = self.path / "held"
        self.unassigned = self.path / UNASSIGNED

    @property
    def pipes(self) -> list[Path]:
        return [self.path / name for name in _PIPES]

    def create(self) -> None:
        """Create the directory and the pipes. Idempotent."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for pipe in self.pipes:
            if not pipe.is_fifo():
                pipe.unlink(missing_ok=True)
                os.mkfifo(pipe, 0o600)

    def remove(self) -> None:
        """Remove everything, whatever a process of the machine or its resolver made in its folders. Idempotent.

        The record first: an incomplete directory is an orphan. Raise OSError if something is left.
        """
        self.record.unlink(missing_ok=True)
        if not remove_tree(self.path):
            raise OSError(errno.ENOTEMPTY, "the machine's directory could not be removed", str(self.path))

    def mark_unassigned(self, unassigned: bool) -> None:
        """Note whether the machine belongs to nobody. Raise OSError."""
        self.unassigned.touch(0o600) if unassigned else self.unassigned.unlink(missing_ok=True)

    def read_record(self) -> Record | None:
        try:
            return Record.from_json(json.loads(self.record.read_bytes()))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write_record(self, record: Record) -> None:
        write_atomically(self.record, json.dumps(asdict(record)).encode())

    def change_epoch(self, epoch: int) -> None:
        """Record another epoch, if there is a record. Raise OSError."""
        with self.changing():
            record = self.read_record()
            if record is not None and record.epoch != epoch:
                self.write_record(replace(record, epoch=epoch))

    def changing(self) -> AbstractContextManager[object]:
        """Return a block in which no other thread of this process changes the machine's record or its disk's files.

        A disk may be flattened, and a network policy applied, while something else is done to the machine.
        """
        return _LOCKS[hash(self.path) % len(_LOCKS)]

    def epoch(self) -> int | None:
        """Return the epoch of its record; None without one. The machine of the pool that nobody has yet has 0."""
        record = self.read_record()
        return record.epoch if record is not None else None

    def read_chain(self) -> Chain:
        """Return the files of its disk; a first preparation that has not ended has the ordinary one."""
        record = self.read_record()
        return record.chain if record is not None else Chain()

    def top_disk(self) -> Path:
        """Return the file of its disk that is written."""
        return self.path / self.read_chain().top.file

    def read_status(self) -> Status:
        try:
            return Status.from_json(json.loads((self.path / "status.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return Status()

    def write_status(self, status: Status) -> None:
        write_atomically(self.path / "status.json", json.dumps(asdict(status)).encode())


def machine_dirs(machines_dir: Path) -> Iterator[MachineDir]:
    """Yield every directory whose name is a machine id."""
    for entry in os.scandir(machines_dir):
        if entry.is_dir(follow_symlinks=False) and MACHINE_ID.fullmatch(entry.name):
            yield MachineDir(machines_dir, entry.name)
