"""The driver contract: what a hypervisor backend promises to the rest of the platform.

A driver knows machines and one host; it knows nothing of workspaces, accounts or the database. Exactly one process
per host (`vmhost`) opens a driver. Every backend passes the same suite, `tests/vmbackend/test_driver_contract.py`.

Words used throughout:
* *machine*: a micro-VM with its disk, its network port, its configuration and its log, named by an `id`
  (`[a-z0-9_]{1,40}`; the platform passes workspace ids).
* *saved memory*: what `sleep` wrote and the next `start` loads; it belongs to the machine and goes with it.
* *leftover*: anything of ours on the host (domain, disk, tap, firewall entry, saved memory) that no live machine needs.

Rules that hold for every method:
* Every method is safe to call again after it failed or after the process died in the middle of it; what it leaves
  behind on failure is said in its docstring.
* Methods may be called from several threads at once, for different machines. Calls for one machine are made one at a
  time (the platform runs one operation per machine), except `state`, `destroy` and `delete`.
* Only exceptions of `vmbackend.errors` come out. Times are seconds (float), sizes MiB unless the name says otherwise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from vmbackend.policy import OPEN, Networking, NetworkPolicy
from vmbackend.samples import Metered


class MachineState(StrEnum):
    """What the hypervisor says of a machine now."""

    ABSENT = "absent"  # not defined here
    OFF = "off"  # defined, no process, no saved memory
    RUNNING = "running"
    PAUSED = "paused"  # process there, CPUs stopped
    ASLEEP = "asleep"  # no process, memory saved on disk


class EventKind(StrEnum):
    """What a driver reports without being asked."""

    READY = "ready"  # the guest finished its boot and its services answer
    MAIN_EXITED = "main_exited"  # its main process ended; `exit_code` is set; the VM powers off by itself next
    STOPPED = "stopped"  # the hypervisor process is gone; `reason` says why


class StopReason(StrEnum):
    """Why a machine's process is gone."""

    SHUTDOWN = "shutdown"  # the guest powered off cleanly (asked to, or of its own)
    DESTROYED = "destroyed"  # this driver ended it
    CRASHED = "crashed"  # the process died or was killed
    PANICKED = "panicked"  # the guest's kernel gave up, or it rebooted without being asked
    SAVED = "saved"  # memory was written to disk
    LOST = "lost"  # the machine is no longer known to the hypervisor at all


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a machine. Delivered at least once, in order per machine, on a driver thread."""

    machine_id: str
    kind: EventKind
    reason: StopReason | None = None
    exit_code: int | None = None


class WorkloadRestart(StrEnum):
    """What becomes of a workload that ended."""

    NEVER = "never"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Workload:
    """A supervised program beside the main one. Its end never ends the machine.

    `max_restarts` 0 is no limit; `restart_delay` in seconds. `log_path`: absolute, in the guest; None: a bounded log of
    the kit's own. `env` is added to the machine's.
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
    """What the guest starts. Travels in a file only root of the host can read, never on a kernel command line.

    `cmd` set: the main process; its end is the machine's exit. `cmd` None: `entrypoint` (from the image) runs as a
    supervised service, and the machine stays up whatever becomes of it; both None: nothing is started. `workloads`
    start beside it. `wait_for_init`: READY is told only after the main program and every workload have been started
    (or could not be); without it, as soon as the guest's services answer. `ssh`: a second SSH server, on port 22, for
    the keys in `ssh_keys` (OpenSSH lines) and nothing else. `keep_logs` False: logs of earlier starts are removed.
    """

    hostname: str
    env: Mapping[str, str] = field(default_factory=dict)
    cmd: tuple[str, ...] | None = None
    entrypoint: tuple[str, ...] | None = None
    working_dir: str = "/"
    user: str = "root"
    workloads: tuple[Workload, ...] = ()
    wait_for_init: bool = False
    ssh: bool = False
    ssh_keys: tuple[str, ...] = ()
    keep_logs: bool = True


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A machine as it shall be. `image` is the digest of an image that `ImageStore.ensure` has made ready."""

    id: str
    image: str
    cpus: float  # 0.1 and up; a fraction is a quota on ceil(cpus) virtual CPUs
    memory_mb: int
    disk_mb: int  # size of the writable disk
    ip: str  # inside the host's subnet; the MAC address is derived from it
    boot: Boot
    network: NetworkPolicy = OPEN


@dataclass(frozen=True, slots=True)
class MachineIdentity:
    """What others need to reach the machine's guest."""

    ip: str
    ssh_host_key: str  # OpenSSH public key line of the guest's control port
    control_port: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """The host's size and what is free of it at this moment."""

    arch: str  # as OCI spells it: amd64, arm64
    accelerated: bool
    cpus: int
    memory_mb: int
    memory_free_mb: int
    disk_mb: int
    disk_free_mb: int
    snapshots: bool = True  # whether machines can sleep here
    boot_id: str = ""  # changes when the host was booted anew


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything of this instance that exists on the host, by machine id. Foreign things are never in it."""

    domains: Mapping[str, MachineState]
    directories: frozenset[str]  # machine ids that own a directory with disks, configuration or saved memory
    taps: frozenset[str]
    firewall: frozenset[str]
    saved: frozenset[str] = frozenset()  # machine ids with saved memory, whole or partial, wherever it lies

    def ids(self) -> frozenset[str]:
        """Every machine id of which anything exists."""
        return frozenset(self.domains) | self.directories | self.taps | self.firewall | self.saved


class Driver(Networking, Metered, ABC):
    """One host's hypervisor. Measuring is in `vmbackend.samples`."""

    @abstractmethod
    def open(self, on_event: Callable[[Event], None]) -> None:
        """Connect, prepare the host (bridge, firewall) and start reporting events; machines that run are adopted.

        Blocks until `state` and `inventory` tell the truth about machines that ran before, including those whose
        process died while nobody was attached. `on_event` is called on a driver thread and must return quickly.
        Raises BackendUnavailable. Leaves nothing open on failure.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop reporting and disconnect. Machines go on running. Closing twice is harmless."""

    @abstractmethod
    def capacity(self) -> Capacity:
        """The host's size and free room; takes no lock that a long call of another thread could hold."""

    @abstractmethod
    def prepare(self, spec: MachineSpec) -> MachineIdentity:
        """Make the machine's disk, network port and definition, without starting it.

        A machine prepared before is brought to `spec`: definition, configuration and firewall are made anew, the
        disk's contents and the host key are kept (it grows where `disk_mb` is larger, it never shrinks). A machine that
        is not known to the hypervisor any more, but whose files are here, is brought back with them.
        Raises CapacityExceeded (before anything is written), ImageNotFound (the digest is not in the store),
        InvalidMachineState (it runs or sleeps). On failure of a first preparation nothing is left behind.
        """

    @abstractmethod
    def start(self, machine_id: str) -> None:
        """Start a prepared machine; returns when its process runs, not when the guest is ready.

        Asleep: its memory is loaded, and it is as it was when it slept, ready included. Paused: resumed. Running:
        nothing happens. Raises MachineNotFound, CapacityExceeded (memory; it is as it was), BackendUnavailable,
        SavedMemoryUnusable (its memory cannot be loaded; it is dropped and the machine is off, disk intact, so that the
        next start is a cold one). On any other failure the machine is off, or still asleep if it was.
        """

    @abstractmethod
    def wait_ready(self, machine_id: str, timeout: float) -> None:
        """Return once the guest has said `ready` since its last start: its control port listens then.

        Of a machine that a former driver started, whose word may be lost, the port itself is asked. Changes nothing.
        Raises MachineExited (it ended first), DeadlineExceeded, MachineNotFound.
        """

    @abstractmethod
    def shutdown(self, machine_id: str, grace: float) -> bool:
        """Ask the guest to power off and wait at most `grace` seconds; then end it hard.

        Returns True where the guest went by itself. Off or absent: True at once. Paused: ended after resuming it for
        the grace time. Asleep: its memory is dropped, True. Afterwards the machine is off. Raises BackendUnavailable.
        """

    @abstractmethod
    def destroy(self, machine_id: str) -> None:
        """End the machine's process now and drop saved memory; disk and definition stay. Absent or off succeeds."""

    @abstractmethod
    def delete(self, machine_id: str) -> None:
        """Remove the machine and everything of it: process, definition, disks, saved memory, log, port, firewall.

        Of an absent machine or of any leftover of one it removes what there is; nothing there succeeds. If it fails
        half way, calling it again finishes.
        """

    @abstractmethod
    def pause(self, machine_id: str) -> None:
        """Stop the CPUs; memory stays. Paused already succeeds. Raises MachineNotFound, InvalidMachineState."""

    @abstractmethod
    def resume(self, machine_id: str) -> None:
        """Let the CPUs go on. Running already succeeds. Raises MachineNotFound, InvalidMachineState."""

    @abstractmethod
    def sleep(self, machine_id: str) -> None:
        """Write the machine's memory to the host's disk and end its process; `start` loads it again.

        Running or paused; asleep already succeeds. Raises CapacityExceeded (disk; before anything is written),
        MachineNotFound, InvalidMachineState (it is off), BackendUnavailable. On failure the machine goes on as it was,
        and no partial memory stays. A death in the middle leaves either a running machine, whose partial memory the
        next `open` removes, or a sleeping one.
        """

    @abstractmethod
    def resync_guest(self, machine_id: str) -> None:
        """After a sleep or a pause: step the guest's clock to the host's and reseed its kernel's random pool.

        Returns when both are done. Raises MachineNotFound, InvalidMachineState (it does not run), GuestUnreachable.
        """

    @abstractmethod
    def reset_disk(self, machine_id: str) -> None:
        """Make the writable disk anew, empty and of the same size; definition, address and host key stay.

        In one step: before it the old disk is whole, after it the new one. Raises InvalidMachineState (it is not off),
        MachineNotFound, CapacityExceeded, BackendUnavailable; the old disk is untouched then.
        """

    @abstractmethod
    def agent_responds(self, machine_id: str, timeout: float) -> bool:
        """Whether the guest's agent answers a ping within `timeout` seconds (rounded up to whole ones).

        False for a guest without one, or that is silent, paused or off. Raises MachineNotFound, BackendUnavailable.
        """

    @abstractmethod
    def state(self, machine_id: str) -> MachineState:
        """The machine's state now. Raises BackendUnavailable only."""

    @abstractmethod
    def inventory(self) -> Inventory:
        """All there is of this instance. May take a second; not for hot paths."""

    @abstractmethod
    def boot_log(self, machine_id: str) -> Path:
        """Where the console output of the machine's starts is written, as `bootlog` says. The file may not exist."""

    @abstractmethod
    def definition(self, machine_id: str) -> dict[str, object]:
        """The machine's raw definition with secrets removed. Raises MachineNotFound."""
