"""The driver contract: what the rest of the platform relies on in every hypervisor backend.

A driver knows machines and one host; it knows nothing of workspaces, accounts or the database. Exactly one process
per host (`vmhost`) opens a driver. Every backend passes the same tests, `tests/vmbackend/test_driver_*.py`.

Terms:
* *machine*: a micro-VM with its disk, its network port, its configuration and its log, named by an `id`
  (`[a-z0-9_]{1,40}`; the platform passes workspace ids).
* *saved memory*: written by `sleep`, loaded by the next `start`; removed with the machine.
* *orphan*: an object of this instance on the host (domain, disk, tap, firewall entry, saved memory) without a machine.

Rules that hold for every method:
* Every method is safe to call again after it failed or after the process died during the call; the docstrings say what
  remains on failure.
* Methods may be called concurrently for different machines. Calls for one machine are made one at a
  time (the platform runs one operation per machine), except `state`, `destroy` and `delete`.
* Only exceptions of `vmbackend.errors` are raised. Times are seconds (float), sizes MiB unless the name says otherwise.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from vmbackend.capabilities import HostCapabilities
from vmbackend.copies import Copied
from vmbackend.moves import Moved
from vmbackend.orphans import KeepsOrphans
from vmbackend.policy import OPEN, Networking, NetworkPolicy
from vmbackend.power import Powered
from vmbackend.samples import Metered


class MachineState(StrEnum):
    """A machine's state as the hypervisor reports it."""

    ABSENT = "absent"  # not defined here
    OFF = "off"  # defined, no process, no saved memory
    RUNNING = "running"
    PAUSED = "paused"  # has a process, CPUs stopped
    ASLEEP = "asleep"  # no process, memory saved on disk


class EventKind(StrEnum):
    """The kinds of events that a driver reports."""

    READY = "ready"  # the guest has booted and its services answer
    MAIN_EXITED = "main_exited"  # its main process ended; `exit_code` is set; the machine powers off next
    STOPPED = "stopped"  # the hypervisor process ended; `reason` is set


class StopReason(StrEnum):
    """The reason why a machine's process ended."""

    SHUTDOWN = "shutdown"  # the guest powered off, on request or by itself
    DESTROYED = "destroyed"  # ended by this driver
    CRASHED = "crashed"  # the process died or was killed
    PANICKED = "panicked"  # the guest's kernel panicked, or the guest rebooted
    SAVED = "saved"  # memory was written to disk
    LOST = "lost"  # the hypervisor does not know the machine any more


@dataclass(frozen=True, slots=True)
class Event:
    """An event, delivered at least once, in order per machine. `exit_code`: of MAIN_EXITED; `reason`: of STOPPED."""

    machine_id: str
    kind: EventKind
    reason: StopReason | None = None
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class MachineEnd:
    """The end of a machine's last process. `exit_code`: of its main process, if the guest reported it before.

    `is_final` False: reports about the end are not processed yet. `reason` is what the hypervisor says until then; the
    STOPPED event that follows may have another one.
    """

    reason: StopReason
    exit_code: int | None = None
    is_final: bool = True


class WorkloadRestart(StrEnum):
    """The condition for starting a workload again after its end."""

    NEVER = "never"
    ON_FAILURE = "on-failure"  # after an exit code other than 0, or a signal
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Workload:
    """A supervised program besides the main one. Its exit never stops the machine.

    `max_restarts` 0: no limit; `restart_delay` in seconds. `log_path`: absolute, in the guest; None: the kit's
    default, of limited size. `env` is added to the machine's.
    """

    name: str  # [A-Za-z0-9][A-Za-z0-9_.-]{0,63}
    cmd: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    working_dir: str | None = None  # None: the machine's
    user: str | None = None
    restart: WorkloadRestart = WorkloadRestart.ON_FAILURE
    max_restarts: int = 0
    restart_delay: int = 1
    log_path: str | None = None


@dataclass(frozen=True, slots=True)
class Boot:
    """The programs that the guest starts. Passed in a file that only root of the host can read, never on a kernel
    command line.

    `cmd`: the main process; its exit stops the machine. Without `cmd`, `entrypoint` (from the image) runs as a
    supervised service and the machine stays up regardless of it; both None: nothing is started. `workloads` start
    besides it.
    `wait_for_init`: READY is reported only after the main program and every workload were started (or failed to start);
    otherwise as soon as the guest's services answer. `stop_signal`: the image's, as it spells it (empty: SIGTERM); when
    the machine powers off the main program gets it, and what has not ended `stop_grace` seconds later is killed.
    `ssh`: a second SSH server, on port 22, which accepts only the keys in `ssh_keys` (OpenSSH lines).
    `keep_logs` False: logs of earlier starts are removed. `directories`: absolute paths that are made at each start
    where nothing is (root's, 0755), through links of the image.
    `unassigned`: it starts no program and belongs to nobody until `Driver.assign`.
    """

    hostname: str
    env: Mapping[str, str] = field(default_factory=dict)
    cmd: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    working_dir: str = ""  # the image's; empty: / for programs, the user's home for commands and terminals
    user: str = "root"
    stop_signal: str = ""
    stop_grace: int = 5
    workloads: tuple[Workload, ...] = ()
    wait_for_init: bool = False
    ssh: bool = False
    ssh_keys: tuple[str, ...] = ()
    keep_logs: bool = True
    directories: tuple[str, ...] = ()
    unassigned: bool = False


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A machine's specification. `image`: the digest of an image that `ImageStore.ensure` has prepared."""

    id: str
    image: str
    cpus: float  # 0.1 and up; a fraction is a quota on ceil(cpus) virtual CPUs
    memory_mb: int
    disk_mb: int  # size of the writable disk
    ip: str  # inside the host's subnet; the MAC address is derived from it
    boot: Boot
    network: NetworkPolicy = OPEN
    image_changes: tuple[str, ...] = ()  # `Image.changes`: the first lines of a new console log
    snapshot: str = ""  # a first `prepare` takes the disk of this snapshot in place of an empty one
    epoch: int = 1  # see `vmbackend.orphans`


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """The data needed to connect to the machine's guest."""

    ip: str
    ssh_host_key: str  # OpenSSH public key line of the guest's control port
    control_port: int


@dataclass(frozen=True, slots=True)
class BootTemplate:
    """A boot template of a host. `made_at`: seconds since the epoch; `loads`, `failures`: since its vmhost began."""

    cpus: int
    memory_mb: int
    size_bytes: int
    made_at: float
    loads: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """The host's size and its free memory and disk, at the time of the call."""

    arch: str  # as OCI spells it: amd64, arm64
    accelerated: bool
    cpus: int
    memory_mb: int
    memory_free_mb: int
    disk_mb: int
    disk_free_mb: int
    snapshots: bool = True  # whether this host supports saved memory
    boot_id: str = ""  # changes with each boot of the host
    templates: tuple[BootTemplate, ...] = ()  # that starts of machines may begin from
    capabilities: HostCapabilities = field(default_factory=HostCapabilities)


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything of this instance that exists on the host, by machine id; nothing of other instances."""

    domains: Mapping[str, MachineState]
    directories: frozenset[str]  # machine ids with a directory of disks, configuration or saved memory
    taps: frozenset[str]
    firewall: frozenset[str]
    saved: frozenset[str] = frozenset()  # machine ids with saved memory, complete or partial, in any place
    snapshots: frozenset[str] = frozenset()  # ids of the store's complete snapshots; they belong to no machine
    epochs: Mapping[str, int] = field(default_factory=dict)  # as `Driver.epoch_of`; without those of which it is None
    read_at: float = field(default_factory=time.monotonic, compare=False)  # monotonic clock; not before it was read

    def ids(self) -> frozenset[str]:
        """Return all machine ids that occur."""
        return frozenset(self.domains) | self.directories | self.taps | self.firewall | self.saved


class Driver(Networking, Powered, Copied, Moved, KeepsOrphans, Metered, ABC):
    """One host's hypervisor. The others: `vmbackend.policy`, `power`, `copies`, `moves`, `orphans`, `samples`."""

    @abstractmethod
    def open(self, on_event: Callable[[Event], None]) -> None:
        """Connect, set the host up (bridge, firewall) and start reporting events; running machines are adopted.

        Blocks until `state` and `inventory` are correct for machines that ran before, including those whose process
        died while no driver was open. `on_event` is called on a driver thread and must return quickly.
        Raise BackendUnavailable. Leaves nothing open on failure.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop reporting and disconnect. Machines continue to run. Idempotent."""

    @abstractmethod
    def capacity(self) -> Capacity:
        """Return the host's size and free resources; never blocked by a long call of another thread."""

    @abstractmethod
    def prepare(self, spec: MachineSpec) -> MachineIdentity:
        """Create the machine's disk, network port and definition, without starting it.

        An existing machine is changed to `spec`: definition, configuration and firewall are replaced, the disk's
        contents and the host key are kept (the disk grows to `disk_mb`, it never shrinks). A machine whose files
        exist but which the hypervisor does not know is defined again.
        Raise CapacityExceeded (before anything is written), ImageNotFound (the digest is not in the store),
        InvalidMachineState (it runs or sleeps, or was prepared for another epoch but 0). If the first `prepare` of a
        machine fails, nothing remains.
        """

    @abstractmethod
    def assign(self, spec: MachineSpec) -> None:
        """Give a paused machine, which was prepared as `Boot.unassigned` and was ready, what `spec` says; let it run.

        That is environment, keys, programs, name and network policy, with the right clock, a reseeded random pool and
        another generation; image, sizes and address are those that it has. Return once the guest has confirmed each
        item; `wait_ready` waits then as after a start. Record and configuration are those of `spec` from here on.
        Raise MachineNotFound, InvalidMachineState (not paused, or not such a machine), GuestUnreachable,
        BackendUnavailable: the machine is off then, and `prepare` and `start` make it as any other.
        """

    @abstractmethod
    def delete(self, machine_id: str) -> None:
        """Remove the machine completely: process, definition, disks, saved memory, log, port, firewall.

        Also removes what remains of an incomplete machine or an orphan. Idempotent. After a failure, calling it again
        completes the removal.
        """

    @abstractmethod
    def reset_disk(self, machine_id: str) -> None:
        """Replace the writable disk by an empty one of the same size; definition, address and host key stay.

        Atomic. Raise InvalidMachineState (not off), MachineNotFound, CapacityExceeded, BackendUnavailable.
        """

    @abstractmethod
    def agent_responds(self, machine_id: str, timeout: float) -> bool:
        """Return whether the guest's agent answers a ping within `timeout` seconds (rounded up to whole ones).

        False for a guest without an agent, and if it is paused or off. Raise MachineNotFound, BackendUnavailable.
        """

    @abstractmethod
    def state(self, machine_id: str) -> MachineState:
        """Return the machine's present state. Raise BackendUnavailable only."""

    @abstractmethod
    def last_end(self, machine_id: str) -> MachineEnd:
        """Return how the last process of a machine that is off or absent ended, with everything that its guest had
        reported by then, also if those events are not delivered yet. Final when the STOPPED event of that process is
        delivered, or before. Raise BackendUnavailable.
        """

    @abstractmethod
    def inventory(self) -> Inventory:
        """Return all objects of this instance on the host. May take a second; not for hot paths. Raises
        BackendUnavailable.
        """

    @abstractmethod
    def disk_allocations(self) -> dict[str, int]:
        """Return bytes that the disk of each machine of this instance occupies on the host, by machine id. Takes a
        file's status each, no call of the hypervisor.
        """

    @abstractmethod
    def boot_log(self, machine_id: str) -> Path:
        """Return the path of the console log, in the format of `vmbackend.bootlog`. The file may not exist."""

    @abstractmethod
    def definition(self, machine_id: str) -> dict[str, object]:
        """Return the machine's raw definition without secrets. Raise MachineNotFound."""
