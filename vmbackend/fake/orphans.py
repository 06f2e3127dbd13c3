"""Kept orphans of the fake host: orphans/NAME/ with the machine's folder, its memory in it; its definition goes."""

from __future__ import annotations

import time
from pathlib import Path

from vmbackend.driver import StopReason
from vmbackend.errors import InvalidMachineState, MachineNotFound
from vmbackend.fake.machines import EPOCH_FILE, IN_MEMORY, ORPHANS_MEMORY, FakeMachines
from vmbackend.fake.trees import file_stats
from vmbackend.orphans import KeptOrphan
from vmbackend.trees import remove_tree


class FakeOrphans(FakeMachines):
    """The contract of `vmbackend.orphans`. `crash_hook` is called with `set_aside:ended` and `put_back:written`."""

    def epoch_of(self, machine_id: str) -> int | None:
        return self._epoch_of(machine_id)

    def set_aside(self, machine_id: str) -> None:
        self._enter("set_aside")
        with self._store.locked():
            epoch = self.epoch_of(machine_id)
            if epoch is None:
                return
            domain = self._store.domain(machine_id)
            if domain is not None and domain.state in IN_MEMORY:
                self._stop(domain, StopReason.DESTROYED)
            self._hook("set_aside:ended")
            saved = self._store.saved_memory(machine_id)
            if saved.exists():
                saved.rename(self._store.directory(machine_id) / ORPHANS_MEMORY)
            self._folder.mkdir(exist_ok=True)
            self._store.directory(machine_id).rename(self._folder / f"{machine_id}.{epoch}.{int(time.time())}")
            self._remove(machine_id)

    def kept_orphans(self) -> tuple[KeptOrphan, ...]:
        with self._store.locked():
            found = [self._read(path) for path in self._folder.glob("*")] if self._folder.exists() else []
        return tuple(sorted(found, key=lambda orphan: (orphan.kept_since, orphan.name)))

    def put_back(self, name: str, epoch: int, ip: str) -> None:
        self._enter("put_back")
        aside, machine_id = self._orphan(name), name.partition(".")[0]
        with self._store.locked():
            if not aside.exists() and self.epoch_of(machine_id) == epoch:
                return
            if not (aside / EPOCH_FILE).exists():
                raise MachineNotFound("This host keeps no such orphan.")
            if self._store.directory(machine_id).exists() or self._store.domain(machine_id) is not None:
                raise InvalidMachineState("The host has a machine of this id.")
            self._store.write(aside / EPOCH_FILE, str(epoch))
            self._hook("put_back:written")
            aside.rename(self._store.directory(machine_id))

    def remove_orphan(self, name: str) -> None:
        self._enter("remove_orphan")
        with self._store.locked():
            (self._orphan(name) / EPOCH_FILE).unlink(missing_ok=True)
            self._hook("remove_orphan:half")
            remove_tree(self._orphan(name))

    def keep_since(self, name: str, at: float) -> str:
        """Let an orphan be kept since another time; return its name from then on."""
        machine_id, epoch, _ = name.split(".")
        return self._orphan(name).rename(self._folder / f"{machine_id}.{epoch}.{int(at)}").name

    @property
    def _folder(self) -> Path:
        return self._store.root / "orphans"

    def _orphan(self, name: str) -> Path:
        if name.count(".") != 2 or "/" in name:
            raise MachineNotFound("This host keeps no such orphan.")
        return self._folder / name

    def _read(self, path: Path) -> KeptOrphan:
        machine_id, epoch, at = path.name.split(".")
        size = sum(file.st_blocks * 512 for file in file_stats(path))
        return KeptOrphan(path.name, machine_id, int(epoch), float(at), size)
