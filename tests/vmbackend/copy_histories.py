"""Histories of copies at random, with what each machine and each snapshot must contain kept beside the real ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from vmbackend.copies import AfterSnapshot
from vmbackend.driver import MachineState
from vmbackend.guest.session import GuestAddress
from vmbackend.libvirt.store import FOLDER
from vmbackend.power import StartedFrom

from .conftest import Harness
from .snapshot_scenes import contents_of_layers, entry_of, files_of, run

NAMES = "abcdef"
MACHINES_MAX, SNAPSHOTS_MAX = 4, 5
DISK_MB, DISK_MB_MAX = 64, 192
MEMORY_MB = (192, 208)
READ = f"for n in {' '.join(NAMES)}; do echo $n disk $(cat /$n 2>&1); echo $n memory $(cat /dev/shm/$n 2>&1); done"
Texts = dict[str, str]


@dataclass
class Made:
    """A machine, and what it must contain. `state`: running, asleep or off."""

    address: GuestAddress
    disk_mb: int
    memory_mb: int
    disk: Texts = field(default_factory=dict)
    memory: Texts = field(default_factory=dict)
    state: MachineState = MachineState.RUNNING

    @property
    def id(self) -> str:
        return self.address.machine_id

    def end(self) -> None:
        self.state, self.memory = MachineState.OFF, {}


@dataclass(frozen=True)
class Stored:
    """A snapshot, and what it must contain; `memory` None: none was kept."""

    id: str
    disk_mb: int
    memory_mb: int
    disk: Texts
    memory: Texts | None


class History:
    """Steps of one seed. `done` tells them to the reader of a failure."""

    def __init__(self, harness: Harness, seed: int, aside: Path) -> None:
        self.harness, self.driver, self._aside = harness, harness.driver, aside
        self._random = random.Random(seed)
        self.machines: list[Made] = []
        self.snapshots: list[Stored] = []
        self.done: list[str] = []
        self._written = 0
        self._steps: dict[Callable[[], None], int] = {
            self._write: 6,
            self._snapshot: 5,
            self._fork: 5,
            self._restore: 3,
            self._resize: 3,
            self._reinstall: 1,
            self._delete: 2,
            self._remove: 2,
            self._flatten: 2,
            self._sleep: 2,
            self._stop: 2,
            self._start: 4,
        }

    def make_line(self) -> None:
        """Make a machine, a fork of it, one of that and one of that, each with and without memory by chance."""
        self.create()
        for _ in range(3):
            self.write(self.machines[-1])
            kept = self.keep(self.machines[-1], memory=self._random.random() < 0.5)
            self.write(self.machines[-1])
            self.fork(kept)
        self.write(self.machines[-1])

    def step(self) -> None:
        """Do something that is possible now."""
        if not self.machines and not self.snapshots:
            self.create()
        done = len(self.done)
        while len(self.done) == done:
            self._random.choices(list(self._steps), list(self._steps.values()))[0]()
        self.require_owners()

    def remove_all(self) -> None:
        """Remove everything in any order; each is looked at as the last thing, after what was removed before it."""
        found: list[Made | Stored] = [*self.machines, *self.snapshots]
        self._random.shuffle(found)
        for each in found:
            if isinstance(each, Made):
                self.check(each)
                self.delete(each)
            else:
                self.check_snapshot(each)
                self.remove(each)
            self.require_owners()

    def create(self) -> None:
        memory_mb = self._random.choice(MEMORY_MB)
        address = self.harness.running_machine(disk_mb=DISK_MB, memory_mb=memory_mb)
        self.machines.append(Made(address, DISK_MB, memory_mb))
        self.done.append(f"create {address.machine_id}")

    def write(self, made: Made) -> None:
        """Write into a file on the disk and one in memory."""
        self._written += 1
        name, text = self._random.choice(NAMES), f"text-{self._written}"
        self.done.append(f"write {name} {text} in {made.id}")
        run(self.harness, made.address, f"echo {text} > /{name}; echo {text} > /dev/shm/{name}; sync")
        made.disk[name] = made.memory[name] = text

    def keep(self, made: Made, *, memory: bool, stop: bool = False) -> Stored:
        name = f"s{len(self.done)}"
        self.done.append(f"snapshot {name} of {made.id}, memory: {memory}, stop: {stop}")
        after = AfterSnapshot.STOP if stop else AfterSnapshot.RESUME
        found = self.driver.snapshot(made.id, name, memory=memory, after=after)
        has_memory = memory and made.state is not MachineState.OFF
        assert found.memory is has_memory
        kept = Stored(name, made.disk_mb, made.memory_mb, dict(made.disk), dict(made.memory) if has_memory else None)
        self.snapshots.append(kept)
        if stop:
            made.end()
        return kept

    def fork(self, kept: Stored) -> None:
        """Make another machine, from its memory or from its disk alone, which may be larger then."""
        loads = kept.memory is not None and self._random.random() < 0.6
        memory_mb = kept.memory_mb if loads else self._random.choice(MEMORY_MB)
        disk_mb = min(DISK_MB_MAX, kept.disk_mb + self._random.choice((0, 0, 32)))
        spec = self.harness.spec(snapshot=kept.id, disk_mb=disk_mb, memory_mb=memory_mb)
        self.done.append(f"fork {spec.id} of {kept.id}, loads: {loads}, {disk_mb} MB, {memory_mb} MB of memory")
        identity = self.driver.prepare(spec)
        address = GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)
        made = Made(address, disk_mb, memory_mb, dict(kept.disk))
        self.machines.append(made)
        self._go_on(made, kept, loads=loads)

    def delete(self, made: Made) -> None:
        self.done.append(f"delete {made.id}")
        self.driver.delete(made.id)
        self.machines.remove(made)

    def remove(self, kept: Stored) -> None:
        self.done.append(f"remove {kept.id}")
        self.driver.remove_snapshot(kept.id)
        self.snapshots.remove(kept)

    def check(self, made: Made) -> None:
        """Require that a machine has what it must, as its guest sees it, or on its disk where it has none."""
        if made.state is not MachineState.RUNNING:
            files = files_of(self.harness, made.id)
            found = contents_of_layers(files.path, files.read_chain().layers, NAMES, self._aside)
            assert found == made.disk, made.id
            return
        lines = [line.split(" ", 2) for line in run(self.harness, made.address, READ).splitlines()]
        texts: dict[str, Texts] = {"disk": {}, "memory": {}}
        for name, kind, text in lines:
            if "No such file" not in text:
                texts[kind][name] = text
        assert texts == {"disk": made.disk, "memory": made.memory}, made.id

    def check_snapshot(self, kept: Stored) -> None:
        entry = entry_of(self.harness, kept.id)
        assert contents_of_layers(entry.path, entry.layers, NAMES, self._aside) == kept.disk, kept.id
        assert entry.has_memory is (kept.memory is not None)
        assert not entry.has_memory or entry.is_unchanged()

    def require_owners(self) -> None:
        """Require that each file and each object on the host is of a machine or a snapshot that there is."""
        folder = self.harness.settings.machines_dir  # type: ignore[attr-defined]
        kept, machines = {each.id for each in self.snapshots}, {each.id for each in self.machines}
        assert {path.name for path in (folder / FOLDER).iterdir()} == {f"snap_{name}" for name in kept}
        assert {path.name for path in folder.iterdir() if not path.name.startswith(".")} == machines
        inventory = self.driver.inventory()
        assert inventory.ids() == machines
        assert inventory.snapshots == kept
        for name in machines:
            files = files_of(self.harness, name)
            layers = {layer.file for layer in files.read_chain().layers}
            assert {path.name for path in files.path.glob("data*")} == layers
        for name in kept:
            entry = entry_of(self.harness, name)
            found = {"manifest.json", *(layer.file for layer in entry.layers), *["memory"] * entry.has_memory}
            assert {path.name for path in entry.path.iterdir()} == found

    def _go_on(self, made: Made, kept: Stored, *, loads: bool) -> None:
        if loads:
            assert self.driver.load(made.id, kept.id) is StartedFrom.SNAPSHOT
        else:
            self.driver.start(made.id)
        self.driver.wait_ready(made.id, self.harness.boot_seconds)
        made.state = MachineState.RUNNING
        made.memory = dict(kept.memory or {}) if loads else {}
        self.check(made)

    def _boot(self, made: Made) -> None:
        self.driver.start(made.id)
        self.driver.wait_ready(made.id, self.harness.boot_seconds)
        made.state = MachineState.RUNNING
        self.check(made)

    def _end(self, made: Made) -> None:
        if made.state is MachineState.RUNNING and self._random.random() < 0.5:
            assert self.driver.shutdown(made.id, self.harness.boot_seconds)
        else:
            self.driver.destroy(made.id)
        made.end()

    def _any(self, *states: MachineState) -> Made | None:
        found = [made for made in self.machines if not states or made.state in states]
        return self._random.choice(found) if found else None

    def _write(self) -> None:
        if made := self._any(MachineState.RUNNING):
            self.write(made)

    def _snapshot(self) -> None:
        if len(self.snapshots) < SNAPSHOTS_MAX and (made := self._any()):
            self.keep(made, memory=self._random.random() < 0.6, stop=self._random.random() < 0.2)

    def _fork(self) -> None:
        if self.snapshots and len(self.machines) < MACHINES_MAX:
            self.fork(self._random.choice(self.snapshots))

    def _restore(self) -> None:
        made = self._any()
        fitting = [kept for kept in self.snapshots if made and kept.disk_mb <= made.disk_mb]
        if made and fitting:
            kept = self._random.choice(fitting)
            loads = kept.memory is not None and kept.memory_mb == made.memory_mb
            self.done.append(f"restore {made.id} to {kept.id}, loads: {loads}")
            self._end(made)
            self.driver.take_disk(made.id, kept.id)
            made.disk = dict(kept.disk)
            self._go_on(made, kept, loads=loads)

    def _resize(self) -> None:
        if made := self._any():
            made.disk_mb = min(DISK_MB_MAX, made.disk_mb + self._random.choice((0, 32, 64)))
            made.memory_mb = self._random.choice(MEMORY_MB)
            self.done.append(f"resize {made.id} to {made.disk_mb} MB, {made.memory_mb} MB of memory")
            self._end(made)
            size = {"disk_mb": made.disk_mb, "memory_mb": made.memory_mb}
            self.driver.prepare(self.harness.spec(id=made.id, ip=made.address.ip, **size))
            self._boot(made)

    def _reinstall(self) -> None:
        if made := self._any():
            self.done.append(f"reinstall {made.id}")
            self._end(made)
            self.driver.reset_disk(made.id)
            made.disk = {}
            self._boot(made)

    def _delete(self) -> None:
        if len(self.machines) > 1 and (made := self._any()):
            self.delete(made)

    def _remove(self) -> None:
        if len(self.snapshots) > 1:
            self.remove(self._random.choice(self.snapshots))

    def _flatten(self) -> None:
        if made := self._any(MachineState.RUNNING, MachineState.OFF):
            self.done.append(f"flatten {made.id}")
            self.driver.flatten(made.id, 120.0)
            assert files_of(self.harness, made.id).read_chain().is_flat
            self.check(made)

    def _sleep(self) -> None:
        if made := self._any(MachineState.RUNNING):
            self.done.append(f"sleep {made.id}")
            self.driver.sleep(made.id)
            made.state = MachineState.ASLEEP

    def _stop(self) -> None:
        if made := self._any(MachineState.RUNNING):
            self.done.append(f"stop {made.id}")
            self._end(made)

    def _start(self) -> None:
        if made := self._any(MachineState.ASLEEP, MachineState.OFF):
            self.done.append(f"start {made.id}, {made.state}")
            self._boot(made)
