"""Test controls of the fake host: failure injection, and events at machines that the driver does not cause."""

from __future__ import annotations

import json

from vmbackend.driver import Capacity, StopReason
from vmbackend.errors import BackendError
from vmbackend.fake.machines import FakeMachines
from vmbackend.policy import NetworkPolicy


class FakeHost(FakeMachines):
    """The controls. `FakeDriver` adds the contract."""

    def fail_next(self, method: str, error: BackendError, *, times: int = 1) -> None:
        """Let the next calls of `method`, or the next executions of "METHOD:POINT", raise."""
        fault = {"at": method, "error": type(error).__name__, "message": error.message}
        with self._store.locked():
            self._store.save_faults(self._store.faults() + [fault] * times)

    def clear_failures(self) -> None:
        """Remove the injected failures."""
        with self._store.locked():
            self._store.save_faults([])

    def kill(self, machine_id: str) -> None:
        """Kill the machine's process."""
        self._stop_machine(machine_id, StopReason.CRASHED)

    def panic(self, machine_id: str) -> None:
        """Let the guest's kernel panic."""
        self._stop_machine(machine_id, StopReason.PANICKED)

    def exit(self, machine_id: str, code: int) -> None:
        """End the machine's main process with this code; the machine ends with it."""
        self._exit_main(machine_id, code)

    def lose_machine(self, machine_id: str) -> None:
        """Lose the machine's definition, as a hypervisor would; its files stay."""
        with self._store.locked():
            domain = self._known(machine_id)
            self._stop(domain, StopReason.LOST)
            (self._store.root / "domains" / f"{machine_id}.json").unlink()

    def save_externally(self, machine_id: str) -> None:
        """Save the machine's memory and end its process, as another tool of the host would."""
        with self._store.locked():
            self._store.write(self._store.saved_memory(machine_id), "whole")
            self._save_and_stop(self._known(machine_id))

    def corrupt_saved_memory(self, machine_id: str) -> None:
        """Make the machine's saved memory unloadable."""
        self._store.write(self._store.saved_memory(machine_id), "spoilt")

    def resync_count(self, machine_id: str) -> int:
        """Return how often `resync_guest` was called since the machine was last started, woken or resumed."""
        return self._known(machine_id).resync_count

    def set_boot_id(self, boot_id: str) -> None:
        """Simulate a reboot of the host."""
        self._store.write(self._store.root / "boot_id", boot_id)

    def ignore_power_button(self, machine_id: str) -> None:
        """Let the guest ignore the power button."""
        (self._store.directory(machine_id) / "stubborn").touch()

    def create_orphans(self, machine_id: str, *kinds: str) -> None:
        """Create orphans of these kinds: `directories`, `taps`, `firewall`, `saved`."""
        for kind in kinds:
            path = self._store.root / kind / machine_id
            path.mkdir(exist_ok=True) if kind == "directories" else path.touch()

    def set_capacity(self, size: Capacity) -> None:
        """Set the host's size; its free resources follow from the machines."""
        self._store.set_capacity(size)

    def policy_of(self, machine_id: str) -> NetworkPolicy:
        """Return the network policy that applies to the machine."""
        return NetworkPolicy.from_json(json.loads((self._store.root / "firewall" / machine_id).read_text()))
