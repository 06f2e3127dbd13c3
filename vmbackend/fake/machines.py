"""The fake host's machines: provisioning, state changes, events."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from vmbackend import errors
from vmbackend.bootlog import begin_boot_log, clear_boot_log, timestamp_prefix
from vmbackend.driver import Event, EventKind, MachineSpec, MachineState, StopReason
from vmbackend.errors import (
    CapacityExceeded,
    ImageNotFound,
    InvalidMachineState,
    MachineNotFound,
    SavedMemoryUnusable,
    SnapshotNotFound,
)
from vmbackend.fake.store import MEMORY_FILE, Domain, FakeStore
from vmbackend.fake.trees import file_stats
from vmbackend.fake.workloads import WORKLOADS_FILE
from vmbackend.peers import Peer
from vmbackend.trees import remove_tree

IN_MEMORY = (MachineState.RUNNING, MachineState.PAUSED)
# In the folder of a machine: its epoch, and the snapshot that its disk was taken from before its first start, or whose
# memory it sleeps on.
EPOCH_FILE, TAKEN_FILE, MOVED_FILE = "epoch", "taken", "moved"
# There: memory that a machine had when it was set aside.
ORPHANS_MEMORY = f"{MEMORY_FILE}.saved"
POLL = 0.01
LOOK = 0.1  # at events that another process has queued


class FakeMachines:
    """Machines as files: how they are provisioned, started, saved and stopped."""

    def __init__(
        self,
        root: Path,
        *,
        images: Collection[str] | None = None,
        run_commands: bool = False,
        delays: Mapping[str, float] | None = None,
        crash_hook: Callable[[str], None] | None = None,
    ) -> None:
        self._store = FakeStore(root)
        self._images = images
        self._run_commands = run_commands
        self.delays = dict(delays or {})
        self.crash_hook = crash_hook
        # Ports of machines with open connections from this host.
        self.connections: dict[str, list[int]] = {}
        # The other hosts that reach the machines.
        self.peers: frozenset[Peer] = frozenset()
        # Machines whose disk consists of files that nothing else needs, with the MiB that a copy writes.
        self.stale: dict[str, int] = {}
        self._closing = threading.Event()
        self._reporter: threading.Thread | None = None

    def boot_log(self, machine_id: str) -> Path:
        """See Driver.boot_log."""
        return self._store.directory(machine_id) / "boot.log"

    def _enter(self, method: str) -> None:
        time.sleep(self.delays.get(method, 0.0))
        self._raise_fault(method)

    def _hook(self, point: str) -> None:
        self._raise_fault(point)
        if self.crash_hook is not None:
            self.crash_hook(point)

    def _raise_fault(self, at: str) -> None:
        if not self._store.faults():
            return
        with self._store.locked():
            faults = self._store.faults()
            mine = next((fault for fault in faults if fault["at"] == at), None)
            if mine is None:
                return
            faults.remove(mine)
            self._store.save_faults(faults)
        raise getattr(errors, mine["error"])(mine["message"])

    def _known(self, machine_id: str) -> Domain:
        domain = self._store.domain(machine_id)
        if domain is None:
            raise MachineNotFound(f"There is no machine {machine_id}.")
        return domain

    def _check_prepare(self, spec: MachineSpec, before: Domain | None) -> None:
        if before is not None and before.state is not MachineState.OFF:
            raise InvalidMachineState("The machine is not off.")
        if self._epoch_of(spec.id) not in (None, 0, spec.epoch):
            raise InvalidMachineState("The machine's files here are those of another assignment.")
        if self._images is not None and spec.image not in self._images:
            raise ImageNotFound("The image is not on this host.")
        capacity = self._store.capacity()
        current_disk = 0 if before is None else before.spec.disk_mb
        if spec.disk_mb - current_disk > capacity.disk_free_mb or spec.memory_mb > capacity.memory_mb:
            raise CapacityExceeded("The host lacks memory or disk space.")

    def _epoch_of(self, machine_id: str) -> int | None:
        path = self._store.directory(machine_id) / EPOCH_FILE
        return int(path.read_text()) if path.exists() else None

    def _check_sleep(self, domain: Domain) -> None:
        if domain.state not in IN_MEMORY:
            raise InvalidMachineState("The machine does not run.")
        capacity = self._store.capacity()
        if not capacity.snapshots:
            raise InvalidMachineState("Machines cannot sleep on this host.")
        if domain.spec.memory_mb > capacity.disk_free_mb:
            raise CapacityExceeded("The host lacks disk space for the machine's memory.")

    def _write_machine(self, spec: MachineSpec) -> None:
        root, directory = self._store.root, self._store.directory(spec.id)
        if spec.snapshot and not (directory / "disk").exists():
            self._take_first_disk(spec, directory)
        (directory / "disk").mkdir(parents=True, exist_ok=True)
        if not spec.boot.keep_logs:
            clear_boot_log(self.boot_log(spec.id))
        begin_boot_log(self.boot_log(spec.id), spec.image_changes)
        (directory / WORKLOADS_FILE).unlink(missing_ok=True)
        self._hook("prepare:disk")
        # Left by a machine that the hypervisor lost: it does not match the new definition.
        self._store.saved_memory(spec.id).unlink(missing_ok=True)
        (directory / MOVED_FILE).unlink(missing_ok=True)
        (directory / ORPHANS_MEMORY).unlink(missing_ok=True)
        self._store.write(directory / EPOCH_FILE, str(spec.epoch))
        (root / "taps" / spec.id).touch()
        self._store.write(root / "firewall" / spec.id, json.dumps(spec.network.as_json()))
        self._hook("prepare:network")
        self._store.save(Domain(spec))

    def _take_first_disk(self, spec: MachineSpec, directory: Path) -> None:
        source = self._store.snapshot(spec.snapshot) / "disk"
        if not source.exists():
            raise SnapshotNotFound(f"There is no snapshot {spec.snapshot} on this host.")
        shutil.copytree(source, directory / "disk", symlinks=True)
        self._store.write(directory / TAKEN_FILE, spec.snapshot)

    def _assign(self, spec: MachineSpec) -> None:
        with self._store.locked():
            clear_boot_log(self.boot_log(spec.id))
            begin_boot_log(self.boot_log(spec.id), spec.image_changes)
            self._store.write(self._store.root / "firewall" / spec.id, json.dumps(spec.network.as_json()))
            self._store.write(self._store.directory(spec.id) / EPOCH_FILE, str(spec.epoch))
            self._hook("assign:half")
            given = self._store.save(self._known(spec.id), spec=spec, state=MachineState.RUNNING, resync_count=1)
            self._store.post(Event(spec.id, EventKind.READY))
            if self._run_commands and spec.boot.cmd is not None:
                self._run_main(given, spec.boot.cmd)

    def _allocated_bytes(self, machine_id: str) -> int:
        disk = self._store.directory(machine_id) / "disk"
        return sum(file.st_blocks * 512 for file in file_stats(disk))

    def _host_key(self, machine_id: str) -> str:
        path = self._store.directory(machine_id) / "host_key"
        if not path.exists():
            self._store.write(path, f"ssh-ed25519 fake-{os.urandom(12).hex()}")
        return path.read_text()

    def _remove(self, machine_id: str) -> None:
        root = self._store.root
        (root / "taps" / machine_id).unlink(missing_ok=True)
        (root / "firewall" / machine_id).unlink(missing_ok=True)
        self._store.saved_memory(machine_id).unlink(missing_ok=True)
        remove_tree(self._store.directory(machine_id))
        (root / "domains" / f"{machine_id}.json").unlink(missing_ok=True)

    def _switch(self, machine_id: str, wanted: MachineState) -> None:
        with self._store.locked():
            domain = self._known(machine_id)
            if domain.state not in IN_MEMORY:
                raise InvalidMachineState("The machine does not run.")
            if domain.state is not wanted:
                self._store.save(domain, state=wanted, resync_count=0)

    def _save_and_stop(self, domain: Domain) -> None:
        """End the process of a machine whose memory was saved, and keep the rest of its state."""
        machine_id = domain.spec.id
        _signal(domain, signal.SIGSTOP)
        left = 0.0 if domain.ready_at is None else max(0.0, domain.ready_at - time.time())
        self._store.drop_events(machine_id, only_future=True)
        self._store.save(domain, state=MachineState.ASLEEP, ready_at=None, ready_in=left)
        self._store.post(Event(machine_id, EventKind.STOPPED, StopReason.SAVED))

    def _restore(self, domain: Domain) -> None:
        """Load its memory. Raise SavedMemoryUnusable; it is off then."""
        saved = self._store.saved_memory(domain.spec.id)
        whole = saved.exists() and saved.read_text() == "whole"
        if not whole:
            self._drop_memory(domain)
            raise SavedMemoryUnusable("The machine's saved memory cannot be loaded.")
        ready_at = time.time() + domain.ready_in
        self._store.save(domain, state=MachineState.RUNNING, ready_at=ready_at, resync_count=0)
        saved.unlink()
        if domain.ready_in > 0:
            self._store.post(Event(domain.spec.id, EventKind.READY), due=ready_at)
        _signal(domain, signal.SIGCONT)

    def _drop_memory(self, domain: Domain) -> None:
        _signal(domain, signal.SIGKILL)
        (self._store.directory(domain.spec.id) / MEMORY_FILE).unlink(missing_ok=True)
        self._store.save(domain, state=MachineState.OFF, ready_at=None, main_pid=None)
        self._store.saved_memory(domain.spec.id).unlink(missing_ok=True)
        (self._store.directory(domain.spec.id) / MOVED_FILE).unlink(missing_ok=True)

    def _drop_partial_memory(self) -> None:
        """Remove what a process death during a sleep left behind: the machine runs."""
        with self._store.locked():
            for machine_id, domain in self._store.domains().items():
                if domain.state is not MachineState.ASLEEP:
                    self._store.saved_memory(machine_id).unlink(missing_ok=True)

    def _drop_partial_snapshots(self) -> None:
        """Remove what a process death during a snapshot left behind."""
        with self._store.locked():
            for partial in (self._store.root / "snapshots").glob(".*"):
                shutil.rmtree(partial, ignore_errors=True)

    def _run(self, domain: Domain) -> None:
        machine_id = domain.spec.id
        (self._store.directory(machine_id) / TAKEN_FILE).unlink(missing_ok=True)
        ready_at = time.time() + self.delays.get("boot", 0.0)
        changes = {"ready_at": ready_at, "exit_code": None, "resync_count": 0}
        domain = self._store.save(domain, state=MachineState.RUNNING, **changes)
        with self.boot_log(machine_id).open("ab") as log:
            log.write(timestamp_prefix() + b"booted\n")
        self._store.post(Event(machine_id, EventKind.READY), due=ready_at)
        if self._run_commands and domain.spec.boot.cmd is not None:
            self._run_main(domain, domain.spec.boot.cmd)

    def _run_main(self, domain: Domain, command: tuple[str, ...]) -> None:
        boot = domain.spec.boot
        process = subprocess.Popen(
            command,
            cwd=self._store.directory(domain.spec.id) / "disk",
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), **boot.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._store.save(domain, main_pid=process.pid)
        threading.Thread(target=self._await_main, args=(domain.spec.id, process), daemon=True).start()

    def _await_main(self, machine_id: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with self._store.locked():
            domain = self._store.domain(machine_id)
            # If the driver stopped the machine, this is not an exit of its own.
            if domain is not None and domain.main_pid == process.pid:
                self._exit_main(machine_id, code if code >= 0 else 128 - code)

    def _exit_main(self, machine_id: str, code: int) -> None:
        with self._store.locked():
            domain = self._store.save(self._known(machine_id), exit_code=code, main_pid=None)
            self._store.drop_events(machine_id, only_future=True)
            self._store.post(Event(machine_id, EventKind.MAIN_EXITED, exit_code=code))
            self._stop(domain, StopReason.SHUTDOWN)

    def _stop_machine(self, machine_id: str, reason: StopReason) -> None:
        with self._store.locked():
            self._stop(self._known(machine_id), reason)

    def _stop(self, domain: Domain, reason: StopReason) -> None:
        """End the machine's process and report it."""
        machine_id = domain.spec.id
        _signal(domain, signal.SIGKILL)
        (self._store.directory(machine_id) / MEMORY_FILE).unlink(missing_ok=True)
        self._store.save(domain, state=MachineState.OFF, ready_at=None, main_pid=None, ended=reason)
        self._store.drop_events(machine_id, only_future=True)
        self._store.post(Event(machine_id, EventKind.STOPPED, reason))

    def _report(self, on_event: Callable[[Event], None]) -> None:
        while not self._closing.is_set():
            self._store.posted.clear()
            for path, event in self._store.due_events():
                on_event(event)
                # After the delivery: a process that dies before this delivers the event again.
                path.unlink(missing_ok=True)
            self._store.posted.wait(POLL if self._store.has_events() else LOOK)


def _signal(domain: Domain, number: signal.Signals) -> None:
    """Signal the main process and its children, if any."""
    if domain.main_pid is not None:
        with suppress(ProcessLookupError):
            os.killpg(domain.main_pid, number)
