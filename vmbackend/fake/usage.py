"""Usage of the fake driver's machines: set by tests, counted since the last start or wake."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from vmbackend.driver import MachineState
from vmbackend.errors import GuestUnreachable, InvalidMachineState
from vmbackend.fake.host import FakeHost
from vmbackend.fake.machines import IN_MEMORY
from vmbackend.fake.store import Domain
from vmbackend.fake.trees import file_stats
from vmbackend.samples import GuestDisk, Sample

COUNTERS = ("cpu_time_ns", "disk_read_bytes", "disk_write_bytes", "net_rx_bytes", "net_tx_bytes")
_KNOWN = {field.name for field in fields(Sample)} - {"at", "generation"}


class FakeMeters(FakeHost):
    """The metering part of the fake driver. Guests use a quarter of their memory unless `add_usage` sets it."""

    def add_usage(self, machine_id: str, **amounts: int) -> None:
        """Add to the machine's counters (fields of `Sample`); `memory_used_bytes` is set, not added."""
        if not set(amounts) <= _KNOWN:
            raise ValueError(f"unknown counters: {set(amounts) - _KNOWN}")
        with self._store.locked():
            domain = self._known(machine_id)
            used = self._used(domain)
            for name, amount in amounts.items():
                used[name] = amount + (used.get(name, 0) if name in COUNTERS else 0)
            self._store.write(self._counters(machine_id), json.dumps({"generation": _generation(domain), **used}))

    def samples(self, machine_ids: Collection[str]) -> dict[str, Sample]:
        """See Metered.samples."""
        self._enter("samples")
        found = {}
        for machine_id in machine_ids:
            domain = self._store.domain(machine_id)
            if domain is not None and domain.state in IN_MEMORY:
                found[machine_id] = self._sample(domain)
        return found

    def guest_disk(self, machine_id: str, timeout: float) -> GuestDisk:
        """See Metered.guest_disk. A delay longer than the timeout simulates a guest that does not answer."""
        domain = self._known(machine_id)
        if self.delays.get("guest_disk", 0.0) > timeout:
            time.sleep(timeout)
            raise GuestUnreachable("The machine's agent does not answer.")
        self._enter("guest_disk")
        if domain.state is not MachineState.RUNNING:
            raise InvalidMachineState("The machine does not run.")
        total = domain.spec.disk_mb << 20
        disk = self._store.directory(machine_id) / "disk"
        return GuestDisk(min(total, sum(file.st_size for file in file_stats(disk))), total)

    def _sample(self, domain: Domain) -> Sample:
        total = domain.spec.memory_mb << 20
        memory = {"memory_used_bytes": total // 4, "memory_total_bytes": total}
        return Sample(at=time.time(), generation=_generation(domain), **(memory | self._used(domain)))

    def _used(self, domain: Domain) -> dict[str, Any]:
        """Return usage of the present process; that of an earlier one is dropped."""
        try:
            used: dict[str, Any] = json.loads(self._counters(domain.spec.id).read_text())
        except FileNotFoundError:
            return {}
        return used if used.pop("generation") == _generation(domain) else {}

    def _counters(self, machine_id: str) -> Path:
        return self._store.directory(machine_id) / "used.json"


def _generation(domain: Domain) -> str:
    return f"{domain.ready_at}"
