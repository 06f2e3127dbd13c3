"""Kept orphans: the part of the driver contract that keeps what a host has of machines that are not its own any more.

Terms are those of `vmbackend.driver`. Besides:
* *epoch*: the number of the assignment that a machine was prepared for (`MachineSpec.epoch`). A workspace has one epoch
  at a time; a machine of another one is a former copy, whose disk may be the only one that is left. 0: the machine
  belongs to nobody yet.
* *kept orphan*: the folder of such a machine beside the machines, with disk, saved memory and the machine's definition.
  It is in no inventory, has no process and no network, and nothing starts it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeptOrphan:
    """One kept orphan. `name`: its folder's; `kept_since`: seconds since the Unix epoch.

    `size_bytes`: what its files occupy on the host; files that it shares with others count.
    """

    name: str
    machine_id: str
    epoch: int
    kept_since: float
    size_bytes: int


class KeepsOrphans(ABC):
    """The part of a driver that sets machines aside."""

    @abstractmethod
    def epoch_of(self, machine_id: str) -> int | None:
        """Return the epoch that the machine was prepared for last. None if nothing says so: there is no machine, or its
        first preparation or its removal has not ended.
        """

    @abstractmethod
    def set_aside(self, machine_id: str) -> None:
        """End the machine and keep its files as an orphan. Its port, its firewall entry and its definition go.

        Do nothing if there is no machine. Idempotent: what is left after a failure is set aside by the next call.
        Raise BackendUnavailable.
        """

    @abstractmethod
    def kept_orphans(self) -> tuple[KeptOrphan, ...]:
        """Return the orphans that this host keeps, the oldest first."""

    @abstractmethod
    def put_back(self, name: str, epoch: int, ip: str) -> None:
        """Make a kept orphan the host's machine of its id again: the machine's of this epoch, at this address.

        It is then a machine whose files exist and which the hypervisor does not know: no process, no port; the next
        `prepare` defines it, with its disk and host key. No machine wakes from the memory that an orphan has: its
        definition and address may be others by then. That memory lies in the folder until the next `prepare`.

        Idempotent: another call with this epoch changes nothing. After a failure or a death it is an orphan or a
        machine, with all its files. Raise MachineNotFound (there is no such orphan, or its removal has begun),
        InvalidMachineState (the host has a machine of this id, which stays as it is), BackendUnavailable.
        """

    @abstractmethod
    def remove_orphan(self, name: str) -> None:
        """Remove a kept orphan with all its files. Idempotent. Raise BackendUnavailable.

        After a death in between it is an orphan that cannot be put back.
        """
