"""A driver without a hypervisor: the same contract over files.

Its state is in one directory, so that api, workers and vmhost of a test may be separate processes. Guests are
directories (`guest.py`). Everything is instant unless a delay is set.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace

from vmbackend.driver import (
    Capacity,
    Driver,
    Event,
    Inventory,
    MachineEnd,
    MachineIdentity,
    MachineSpec,
    MachineState,
    StopReason,
)
from vmbackend.errors import (
    BackendError,
    BackendUnavailable,
    CapacityExceeded,
    DeadlineExceeded,
    GuestUnreachable,
    InvalidMachineState,
    MachineExited,
)
from vmbackend.fake.machines import IN_MEMORY, POLL, TAKEN_FILE
from vmbackend.fake.moves import FakeMoves
from vmbackend.fake.orphans import FakeOrphans
from vmbackend.fake.usage import FakeMeters
from vmbackend.peers import Peer, first_refusal
from vmbackend.policy import NetworkPolicy
from vmbackend.power import StartedFrom

CONTROL_PORT = 10022


class FakeDriver(FakeMeters, FakeMoves, FakeOrphans, Driver):
    """The fake driver: see the module.

    `images`: the digests that exist (None: all). `run_commands`: the machine's `cmd` is executed as a process of this
    host in the machine's directory, and its exit is the machine's. `delays`: seconds by method name; `boot` is the
    time from start to ready. `crash_hook` is called with "METHOD:POINT" in the middle of methods (`prepare:disk`,
    `prepare:network`, `assign:half`, `start:before_run`, `sleep:half`, `reset_disk:half`, `delete:destroyed`), and may
    raise or end the process.
    """

    def open(self, on_event: Callable[[Event], None]) -> None:
        self._enter("open")
        if self._reporter is not None:
            raise BackendUnavailable("The driver is open already.")
        # As with a real hypervisor, events of the time without a driver are lost.
        self._store.drop_events()
        self._drop_partial_memory()
        self._drop_partial_snapshots()
        self._closing.clear()
        self._reporter = threading.Thread(target=self._report, args=(on_event,), name="fake-events", daemon=True)
        self._reporter.start()

    def close(self) -> None:
        self._closing.set()
        self._store.posted.set()
        reporter, self._reporter = self._reporter, None
        if reporter is not None and reporter is not threading.current_thread():
            reporter.join()

    def capacity(self) -> Capacity:
        self._enter("capacity")
        return self._store.capacity()

    def prepare(self, spec: MachineSpec) -> MachineIdentity:
        self._enter("prepare")
        with self._store.locked():
            before = self._store.domain(spec.id)
            self._check_prepare(spec, before)
            first = not (self._store.directory(spec.id) / "host_key").exists()
            try:
                self._write_machine(spec)
            except BaseException:
                if first:
                    self._remove(spec.id)
                raise
        return MachineIdentity(spec.ip, self._host_key(spec.id), CONTROL_PORT)

    def start(self, machine_id: str) -> StartedFrom | None:
        self._enter("start")
        with self._store.locked():
            domain = self._known(machine_id)
            if domain.state in IN_MEMORY:
                self._switch(machine_id, MachineState.RUNNING)
                return None
            if domain.spec.memory_mb > self._store.capacity().memory_free_mb:
                raise CapacityExceeded("The host has not enough free memory.", resource="memory_mb")
            self._hook("start:before_run")
            asleep = domain.state is MachineState.ASLEEP
            self._restore(domain) if asleep else self._run(domain)
            return StartedFrom.MEMORY if asleep else StartedFrom.BOOT

    def assign(self, spec: MachineSpec) -> None:
        domain = self._known(spec.id)
        if domain.state is not MachineState.PAUSED or not domain.spec.boot.unassigned:
            raise InvalidMachineState("The machine does not wait for its assignment.")
        try:
            self._enter("assign")
            self._assign(spec)
        except BackendError:
            self.destroy(spec.id)
            raise

    def wait_ready(self, machine_id: str, timeout: float) -> None:
        self._enter("wait_ready")
        deadline = time.monotonic() + timeout
        while True:
            domain = self._known(machine_id)
            if domain.state not in IN_MEMORY:
                raise MachineExited("The machine ended before it was ready.", exit_code=domain.exit_code)
            running = domain.state is MachineState.RUNNING
            if running and domain.ready_at is not None and domain.ready_at <= time.time():
                return
            if time.monotonic() >= deadline:
                raise DeadlineExceeded("The machine was not ready in time.")
            time.sleep(POLL)

    def shutdown(self, machine_id: str, grace: float) -> bool:
        self._enter("shutdown")
        with self._store.locked():
            domain = self._store.domain(machine_id)
            if domain is not None and domain.state is MachineState.ASLEEP:
                self._drop_memory(domain)
            if domain is None or domain.state not in IN_MEMORY:
                return True
            powered_off = not (self._store.directory(machine_id) / "stubborn").exists()
            self._stop(domain, StopReason.SHUTDOWN if powered_off else StopReason.DESTROYED)
        return powered_off

    def destroy(self, machine_id: str) -> None:
        self._enter("destroy")
        with self._store.locked():
            domain = self._store.domain(machine_id)
            if domain is None:
                return
            if domain.state in IN_MEMORY:
                self._stop(domain, StopReason.DESTROYED)
            else:
                self._drop_memory(domain)

    def delete(self, machine_id: str) -> None:
        self._enter("delete")
        self.destroy(machine_id)
        self._hook("delete:destroyed")
        with self._store.locked():
            self._remove(machine_id)

    def pause(self, machine_id: str) -> None:
        self._enter("pause")
        self._switch(machine_id, MachineState.PAUSED)

    def resume(self, machine_id: str) -> None:
        self._enter("resume")
        self._switch(machine_id, MachineState.RUNNING)

    def sleep(self, machine_id: str) -> None:
        self._enter("sleep")
        with self._store.locked():
            domain = self._known(machine_id)
            if domain.state is MachineState.ASLEEP:
                return
            self._check_sleep(domain)
            saved = self._store.saved_memory(machine_id)
            self._store.write(saved, "partial")
            try:
                self._hook("sleep:half")
            except Exception:  # anything else simulates the death of the process, without clean-up
                saved.unlink(missing_ok=True)
                raise
            self._store.write(saved, "whole")
            self._save_and_stop(domain)

    def resync_guest(self, machine_id: str) -> None:
        self._enter("resync_guest")
        with self._store.locked():
            domain = self._known(machine_id)
            if domain.state is not MachineState.RUNNING:
                raise InvalidMachineState("The machine does not run.")
            if domain.ready_at is None or domain.ready_at > time.time():
                raise GuestUnreachable("The machine's agent does not answer.")
            self._store.save(domain, resync_count=domain.resync_count + 1)

    def reset_disk(self, machine_id: str) -> None:
        self._enter("reset_disk")
        with self._store.locked():
            if self._known(machine_id).state is not MachineState.OFF:
                raise InvalidMachineState("The machine is not off.")
            disk = self._store.directory(machine_id) / "disk"
            # Directories cannot be exchanged atomically; no death is simulated between the two renames.
            old, new = disk.with_name("disk.old"), disk.with_name("disk.new")
            shutil.rmtree(old, ignore_errors=True)
            new.mkdir(exist_ok=True)
            self._hook("reset_disk:half")
            disk.rename(old)
            new.rename(disk)
            shutil.rmtree(old, ignore_errors=True)
            disk.with_name(TAKEN_FILE).unlink(missing_ok=True)

    def set_network(self, machine_id: str, policy: NetworkPolicy) -> None:
        self._enter("set_network")
        with self._store.locked():
            domain = self._known(machine_id)
            self._store.write(self._store.root / "firewall" / machine_id, json.dumps(policy.as_json()))
            self._store.save(domain, spec=replace(domain.spec, network=policy))

    def count_connections(self, machine_id: str) -> int:
        self._enter("count_connections")
        return len(self.connections.get(machine_id, ()))

    def close_connections(self, machine_id: str, ports: Collection[int]) -> None:
        self._enter("close_connections")
        remaining = [port for port in self.connections.get(machine_id, ()) if port not in ports]
        self.connections[machine_id] = remaining

    def apply_peers(self, peers: Collection[Peer]) -> None:
        self._enter("apply_peers")
        if reason := first_refusal(peers):
            raise BackendUnavailable(reason)
        self.peers = frozenset(peers)

    def agent_responds(self, machine_id: str, timeout: float) -> bool:
        self._enter("agent_responds")
        domain = self._known(machine_id)
        ready = domain.ready_at is not None and domain.ready_at <= time.time()
        return domain.state is MachineState.RUNNING and ready

    def state(self, machine_id: str) -> MachineState:
        self._enter("state")
        domain = self._store.domain(machine_id)
        return MachineState.ABSENT if domain is None else domain.state

    def last_end(self, machine_id: str) -> MachineEnd:
        self._enter("last_end")
        domain = self._store.domain(machine_id)
        return MachineEnd(StopReason.LOST) if domain is None else MachineEnd(domain.ended, domain.exit_code)

    def inventory(self) -> Inventory:
        self._enter("inventory")
        with self._store.locked():
            directories = self._store.names("directories")
            return Inventory(
                domains={name: domain.state for name, domain in self._store.domains().items()},
                directories=directories,
                taps=self._store.names("taps"),
                firewall=self._store.names("firewall"),
                saved=self._store.names("saved"),
                snapshots=self._store.names("snapshots"),
                epochs={name: epoch for name in directories if (epoch := self.epoch_of(name)) is not None},
            )

    def disk_allocations(self) -> dict[str, int]:
        return {key: self._allocated_bytes(key) for key in self._store.domains()}

    def definition(self, machine_id: str) -> dict[str, object]:
        self._enter("definition")
        spec = self._known(machine_id).spec
        # Without `boot`: environment and command may be secret.
        fields = ("id", "image", "cpus", "memory_mb", "disk_mb", "ip")
        return {**{name: getattr(spec, name) for name in fields}, "network": spec.network.as_json()}
