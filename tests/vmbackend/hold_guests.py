"""Machines of the fake driver whose tasks are processes of this host."""

from __future__ import annotations

from pathlib import Path

from tests.vmbackend.hold_factory import LocalHold
from vmbackend.guest.hold.transport import OpenTransport


class Guests:
    """A hold for each machine that is asked for one."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.holds: dict[str, LocalHold] = {}

    def of(self, machine_id: str) -> LocalHold:
        if machine_id not in self.holds:
            self.holds[machine_id] = LocalHold(self._program, self._folder / machine_id)
        return self.holds[machine_id]

    def opener(self, machine_id: str) -> OpenTransport:
        return self.of(machine_id).open_transport

    def close(self) -> None:
        for hold in self.holds.values():
            hold.close()
