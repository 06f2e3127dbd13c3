"""Test controls of the fake host: failures to inject, and what happens to machines without the driver's doing."""

from __future__ import annotations

import json

from vmbackend.driver import Capacity, StopReason
from vmbackend.errors import BackendError
from vmbackend.fake.machines import FakeMachines
from vmbackend.policy import NetworkPolicy


class FakeHost(FakeMachines):
    """The controls. `FakeDriver` adds the contract."""

    def fail_next(self, method: str, error: BackendError, *, times: int = 1) -> None:
        """Let the next calls of `method` (or the next passages of "METHOD:POINT") raise."""
        fault = {"at": method, "error": type(error).__name__, "message": error.message}
        with self._store.locked():
            self._store.save_faults(self._store.faults() + [fault] * times)

    def clear_failures(self) -> None:
        """Forget the failures that are still to come."""
        with self._store.locked():
            self._store.save_faults([])

    def kill(self, machine_id: str) -> None:
        """The machine's process dies."""
        self._stop_machine(machine_id, StopReason.CRASHED)

    def panic(self, machine_id: str) -> None:
        """The guest's kernel gives up."""
        self._stop_machine(machine_id, StopReason.PANICKED)

    def exit(self, machine_id: str, code: int) -> None:
        """End the machine's main process with this code; the machine ends with it."""
        self._exit_main(machine_id, code)

    def lose_machine(self, machine_id: str) -> None:
        """The hypervisor forgets the machine; its files stay."""
        with self._store.locked():
            domain = self._known(machine_id)
            self._stop(domain, StopReason.LOST)
            (self._store.root / "domains" / f"{machine_id}.json").unlink()

    def save_externally(self, machine_id: str) -> None:
        """Somebody else saves the machine's memory and ends its process."""
        with self._store.locked():
            self._store.write(self._store.saved_memory(machine_id), "whole")
            self._save_and_stop(self._known(machine_id))

    def corrupt_saved_memory(self, machine_id: str) -> None:
        """What the machine's sleep wrote cannot be loaded any more."""
        self._store.write(self._store.saved_memory(machine_id), "spoilt")

    def resync_count(self, machine_id: str) -> int:
        """How often `freshen` was called since the machine was last started, woken or resumed."""
        return self._known(machine_id).resync_count

    def set_boot_id(self, boot_id: str) -> None:
        """The host was booted anew."""
        self._store.write(self._store.root / "boot_id", boot_id)

    def ignore_power_button(self, machine_id: str) -> None:
        """The guest ignores the power button from now on."""
        (self._store.directory(machine_id) / "stubborn").touch()

    def create_orphans(self, machine_id: str, *kinds: str) -> None:
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
