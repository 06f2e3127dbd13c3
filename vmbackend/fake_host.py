"""What the fake driver's host does by itself, and the knobs by which a test makes it fail."""

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
from vmbackend.bootlog import clear, stamp
from vmbackend.driver import Capacity, Event, EventKind, MachineSpec, MachineState, StopReason
from vmbackend.errors import (
    BackendError,
    ImageNotFound,
    InvalidMachineState,
    MachineNotFound,
    NoRoom,
    SavedMemoryUnusable,
)
from vmbackend.fake_store import Domain, FakeStore
from vmbackend.policy import NetworkPolicy

IN_MEMORY = (MachineState.RUNNING, MachineState.PAUSED)
POLL = 0.01


class FakeHost:
    """Machines as files, and the knobs. `FakeDriver` adds the contract."""

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
        # Ports of machines to which this host holds connections open.
        self.connections: dict[str, list[int]] = {}
        self._closing = threading.Event()
        self._reporter: threading.Thread | None = None

    def fail_next(self, method: str, error: BackendError, *, times: int = 1) -> None:
        """Let the next calls of `method` (or the next passages of "METHOD:POINT") raise."""
        fault = {"at": method, "error": type(error).__name__, "sentence": error.sentence}
        with self._store.locked():
            self._store.save_faults(self._store.faults() + [fault] * times)

    def fail_no_more(self) -> None:
        """Forget the failures that are still to come."""
        with self._store.locked():
            self._store.save_faults([])

    def kill(self, machine_id: str) -> None:
        """The machine's process dies."""
        self._end_of(machine_id, StopReason.CRASHED)

    def panic(self, machine_id: str) -> None:
        """The guest's kernel gives up."""
        self._end_of(machine_id, StopReason.PANICKED)

    def exit(self, machine_id: str, code: int) -> None:
        """The machine's main process ends, and the machine with it."""
        with self._store.locked():
            domain = self._store.save(self._known(machine_id), exit_code=code, main_pid=None)
            self._store.drop_events(machine_id, only_future=True)
            self._store.post(Event(machine_id, EventKind.MAIN_EXITED, exit_code=code))
            self._stop(domain, StopReason.SHUTDOWN)

    def vanish(self, machine_id: str) -> None:
        """The hypervisor forgets the machine; its files stay."""
        with self._store.locked():
            domain = self._known(machine_id)
            self._stop(domain, StopReason.LOST)
            (self._store.root / "domains" / f"{machine_id}.json").unlink()

    def put_to_sleep(self, machine_id: str) -> None:
        """Somebody else saves the machine's memory and ends its process."""
        with self._store.locked():
            self._store.write(self._store.saved_memory(machine_id), "whole")
            self._freeze(self._known(machine_id))

    def spoil_memory(self, machine_id: str) -> None:
        """What the machine's sleep wrote cannot be loaded any more."""
        self._store.write(self._store.saved_memory(machine_id), "spoilt")

    def freshened(self, machine_id: str) -> int:
        """How often `freshen` was called since the machine was last started, woken or resumed."""
        return self._known(machine_id).freshened

    def set_boot_id(self, boot_id: str) -> None:
        """The host was booted anew."""
        self._store.write(self._store.root / "boot_id", boot_id)

    def make_stubborn(self, machine_id: str) -> None:
        """The guest ignores the power button from now on."""
        (self._store.directory(machine_id) / "stubborn").touch()

    def boot_log(self, machine_id: str) -> Path:
        """See Driver.boot_log."""
        return self._store.directory(machine_id) / "boot.log"

    def leave_behind(self, machine_id: str, *kinds: str) -> None:
        """Make leftovers: of `directories`, `taps`, `firewall`, `saved`."""
        for kind in kinds:
            path = self._store.root / kind / machine_id
            path.mkdir(exist_ok=True) if kind == "directories" else path.touch()

    def set_capacity(self, size: Capacity) -> None:
        """The host's size; its free figures follow from the machines."""
        self._store.set_capacity(size)

    def policy_of(self, machine_id: str) -> NetworkPolicy:
        """What the machine's network port lets through."""
        return NetworkPolicy.from_json(json.loads((self._store.root / "firewall" / machine_id).read_text()))

    def _begin(self, method: str) -> None:
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
        raise getattr(errors, mine["error"])(mine["sentence"])

    def _known(self, machine_id: str) -> Domain:
        domain = self._store.domain(machine_id)
        if domain is None:
            raise MachineNotFound(f"There is no machine {machine_id}.")
        return domain

    def _check_prepare(self, spec: MachineSpec, before: Domain | None) -> None:
        if before is not None and before.state is not MachineState.OFF:
            raise InvalidMachineState("The machine is not off.")
        if self._images is not None and spec.image not in self._images:
            raise ImageNotFound("The image is not on this host.")
        room = self._store.capacity()
        held = 0 if before is None else before.spec.disk_mb
        if spec.disk_mb - held > room.disk_free_mb or spec.memory_mb > room.memory_mb:
            raise NoRoom("The host has not enough room.")

    def _check_sleep(self, domain: Domain) -> None:
        if domain.state not in IN_MEMORY:
            raise InvalidMachineState("The machine does not run.")
        room = self._store.capacity()
        if not room.snapshots:
            raise InvalidMachineState("Machines cannot sleep on this host.")
        if domain.spec.memory_mb > room.disk_free_mb:
            raise NoRoom("The host has no room for the machine's memory.")

    def _write_machine(self, spec: MachineSpec) -> None:
        root, directory = self._store.root, self._store.directory(spec.id)
        (directory / "disk").mkdir(parents=True, exist_ok=True)
        if not spec.boot.keep_logs:
            clear(self.boot_log(spec.id))
        self._hook("prepare:disk")
        # Of a machine that the hypervisor forgot: it does not fit the new definition.
        self._store.saved_memory(spec.id).unlink(missing_ok=True)
        (root / "taps" / spec.id).touch()
        self._store.write(root / "firewall" / spec.id, json.dumps(spec.network.as_json()))
        self._hook("prepare:network")
        self._store.save(Domain(spec))

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
        shutil.rmtree(self._store.directory(machine_id), ignore_errors=True)
        (root / "domains" / f"{machine_id}.json").unlink(missing_ok=True)

    def _switch(self, machine_id: str, wanted: MachineState) -> None:
        with self._store.locked():
            domain = self._known(machine_id)
            if domain.state not in IN_MEMORY:
                raise InvalidMachineState("The machine does not run.")
            if domain.state is not wanted:
                self._store.save(domain, state=wanted, freshened=0)

    def _freeze(self, domain: Domain) -> None:
        """Its memory was saved: the process goes, and what it was doing stays as it is."""
        machine_id = domain.spec.id
        _signal(domain, signal.SIGSTOP)
        left = 0.0 if domain.ready_at is None else max(0.0, domain.ready_at - time.time())
        self._store.drop_events(machine_id, only_future=True)
        self._store.save(domain, state=MachineState.ASLEEP, ready_at=None, ready_in=left)
        self._store.post(Event(machine_id, EventKind.STOPPED, StopReason.SAVED))

    def _thaw(self, domain: Domain) -> None:
        """Load its memory. Raises SavedMemoryUnusable; it is off then."""
        saved = self._store.saved_memory(domain.spec.id)
        whole = saved.exists() and saved.read_text() == "whole"
        if not whole:
            self._drop_memory(domain)
            raise SavedMemoryUnusable("The machine's saved memory cannot be loaded.")
        ready_at = time.time() + domain.ready_in
        self._store.save(domain, state=MachineState.RUNNING, ready_at=ready_at, freshened=0)
        saved.unlink()
        if domain.ready_in > 0:
            self._store.post(Event(domain.spec.id, EventKind.READY), due=ready_at)
        _signal(domain, signal.SIGCONT)

    def _drop_memory(self, domain: Domain) -> None:
        _signal(domain, signal.SIGKILL)
        self._store.save(domain, state=MachineState.OFF, ready_at=None, main_pid=None)
        self._store.saved_memory(domain.spec.id).unlink(missing_ok=True)

    def _drop_partial_memory(self) -> None:
        """What a death in the middle of a sleep left: the machine runs, and its memory is the truth."""
        with self._store.locked():
            for machine_id, domain in self._store.domains().items():
                if domain.state is not MachineState.ASLEEP:
                    self._store.saved_memory(machine_id).unlink(missing_ok=True)

    def _run(self, domain: Domain) -> None:
        machine_id = domain.spec.id
        ready_at = time.time() + self.delays.get("boot", 0.0)
        changes = {"ready_at": ready_at, "exit_code": None, "freshened": 0}
        domain = self._store.save(domain, state=MachineState.RUNNING, **changes)
        with self.boot_log(machine_id).open("ab") as log:
            log.write(stamp() + b"booted\n")
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
            # Stopped by the driver meanwhile: its end is no exit.
            if domain is not None and domain.main_pid == process.pid:
                self.exit(machine_id, code if code >= 0 else 128 - code)

    def _end_of(self, machine_id: str, reason: StopReason) -> None:
        with self._store.locked():
            self._stop(self._known(machine_id), reason)

    def _stop(self, domain: Domain, reason: StopReason) -> None:
        """The machine's process is gone."""
        machine_id = domain.spec.id
        _signal(domain, signal.SIGKILL)
        self._store.save(domain, state=MachineState.OFF, ready_at=None, main_pid=None)
        self._store.drop_events(machine_id, only_future=True)
        self._store.post(Event(machine_id, EventKind.STOPPED, reason))

    def _report(self, on_event: Callable[[Event], None]) -> None:
        while not self._closing.is_set():
            for path, event in self._store.due_events():
                on_event(event)
                # After the delivery: a process that dies between the two delivers it again.
                path.unlink(missing_ok=True)
            self._closing.wait(POLL)


def _signal(domain: Domain, number: signal.Signals) -> None:
    """To the main process and its children, where there are any."""
    if domain.main_pid is not None:
        with suppress(ProcessLookupError):
            os.killpg(domain.main_pid, number)
