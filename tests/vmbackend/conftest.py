"""Fixtures of the vmbackend tests: one harness per driver, so that one suite covers all of them."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.vmbackend.hold_factory import LocalHold
from vmbackend.driver import Boot, Driver, Event, EventKind, MachineSpec, MachineState
from vmbackend.fake.driver import FakeDriver
from vmbackend.fake.guest import fake_sessions
from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import GuestAddress, GuestSession

# Holds a secret in memory only and writes it to a file for each line of a pipe. It waits without polling: the machine
# of the drivers' contract runs for as long as its process of tests, on an emulated processor.
SECRET_SCRIPT = """
n=$(cat /proc/sys/kernel/random/uuid)
[ -p request ] || mkfifo request
while :; do
    read -r line < request && echo "$n" > reply
done
"""
SECRET_COMMAND = ("/bin/sh", "-c", SECRET_SCRIPT)


@dataclass
class Harness:
    """A driver under test with its backend-specific hooks. `boot_seconds` is the limit for one boot."""

    make_driver: Callable[[], Driver]
    open_session: Callable[[GuestAddress], GuestSession]
    image: str
    boot_seconds: float
    driver: Driver = field(init=False)
    events: list[Event] = field(default_factory=list)
    # Kills a machine's process, as kill -9 would.
    kill: Callable[[Driver, str], None] = field(kw_only=True)
    # Corrupts the saved memory of a sleeping machine.
    corrupt_memory: Callable[[Driver, str], None] = field(kw_only=True)
    # Undefines a machine in the hypervisor; its files remain.
    undefine: Callable[[Driver, str], None] = field(kw_only=True)
    # Makes the host's disk count as full.
    fill_disk: Callable[[Driver], None] = field(kw_only=True)
    # Seconds that a machine stays asleep, so that its clock falls measurably behind.
    sleep_seconds: float = 0.0
    # Why this backend has no guests; None if it has.
    without_guest: str | None = None
    _used: int = 0
    ids: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.driver = self.make_driver()
        self.driver.open(self.events.append)
        self.pool = GuestPool(self.open_session)

    def spec(self, **changes: Any) -> MachineSpec:
        """A small machine with a unique id and address; `cmd`, `env` and similar fields go into its boot."""
        self._used += 1
        machine_id = changes.pop("id", f"t{os.getpid()}_{self._used}")
        if machine_id not in self.ids:
            self.ids.append(machine_id)
        boot = {k: changes.pop(k) for k in ("env", "cmd", "entrypoint", "working_dir", "user") if k in changes}
        fields: dict[str, Any] = {
            "image": self.image,
            "cpus": 1.0,
            "memory_mb": 192,
            "disk_mb": 64,
            "ip": f"10.123.0.{10 + self._used}",
        }
        return MachineSpec(id=machine_id, boot=Boot(hostname="test", **boot), **(fields | changes))

    def running_machine(self, **changes: Any) -> GuestAddress:
        """Prepare and start a machine and wait until it is ready."""
        spec = self.spec(**changes)
        identity = self.driver.prepare(spec)
        self.driver.start(spec.id)
        self.driver.wait_ready(spec.id, self.boot_seconds)
        return GuestAddress(spec.id, identity.ip, identity.control_port, identity.ssh_host_key)

    def require_guest(self) -> None:
        """Skip the test if the backend has no guests."""
        if self.without_guest:
            pytest.skip(self.without_guest)

    def sleeping_machine(self, **changes: Any) -> GuestAddress:
        """Start a machine and put it to sleep."""
        address = self.running_machine(**changes)
        self.driver.sleep(address.machine_id)
        return address

    def wait_event(self, machine_id: str, kind: EventKind, *, seen: int = 0) -> Event:
        """Wait for the machine's next event of a kind after the first `seen` events."""
        deadline = time.monotonic() + self.boot_seconds
        while time.monotonic() < deadline:
            for event in self.events[seen:]:
                if (event.machine_id, event.kind) == (machine_id, kind):
                    return event
            time.sleep(0.01)
        raise AssertionError(f"no {kind} of {machine_id} in {self.events}")

    def reopen_driver(self) -> None:
        """Close the driver and open a new one on the same host."""
        self.driver.close()
        self.events.clear()
        self.driver = self.make_driver()
        self.driver.open(self.events.append)

    def close(self) -> None:
        """Delete every machine of this test."""
        self.pool.close()
        try:
            for machine_id in self.ids:
                self.driver.delete(machine_id)
        finally:
            self.driver.close()


def _fake(root: Path) -> Harness:
    def kill(driver: Driver, machine_id: str) -> None:
        assert isinstance(driver, FakeDriver)
        driver.kill(machine_id)

    def make() -> Driver:
        return FakeDriver(root, images={"sha256:image"}, run_commands=True, delays={"boot": 0.02})

    def corrupt_memory(driver: Driver, machine_id: str) -> None:
        assert isinstance(driver, FakeDriver)
        driver.corrupt_saved_memory(machine_id)

    def undefine(driver: Driver, machine_id: str) -> None:
        assert isinstance(driver, FakeDriver)
        driver.lose_machine(machine_id)

    def fill_disk(driver: Driver) -> None:
        assert isinstance(driver, FakeDriver)
        driver.set_capacity(replace(driver.capacity(), disk_mb=100))

    return Harness(
        make,
        fake_sessions(root),
        "sha256:image",
        5.0,
        kill=kill,
        corrupt_memory=corrupt_memory,
        undefine=undefine,
        fill_disk=fill_disk,
    )


BACKENDS = ("fake", "mock", pytest.param("libvirt", marks=pytest.mark.vm))


@pytest.fixture(params=BACKENDS)
def harness(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    made = make_harness(request.param, tmp_path, monkeypatch)
    try:
        yield made
    finally:
        made.close()


def make_harness(backend: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    """The fake driver; the libvirt driver over libvirt's own mock hypervisor; the libvirt driver over QEMU."""
    made: Harness
    if backend == "mock":
        pytest.importorskip("libvirt")
        made = pytest.importorskip("tests.vmbackend.mock_factory").make_harness(folder, monkeypatch)
    elif backend == "libvirt":
        # Imported late: it needs libvirt and a built guest kit, which the other tests do not.
        made = pytest.importorskip("tests.vmbackend.libvirt_factory").make_harness(folder)
    else:
        made = _fake(folder / "host")
    return made


@dataclass(frozen=True)
class Machine:
    """A running machine with SECRET_COMMAND, of tests that may end it and do not change its definition."""

    harness: Harness
    address: GuestAddress

    @property
    def id(self) -> str:
        return self.address.machine_id

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open a driver for one test, for which the machine runs. One process has one driver at a time: between the
        tests the machine has none, as between two vmhosts.
        """
        self.harness.reopen_driver()
        try:
            self._run()
            self.harness.events.clear()
            yield
        finally:
            self.harness.driver.close()

    def _run(self) -> None:
        """Bring it back to where it runs, whatever a test has left (a guest that does not answer)."""
        driver = self.harness.driver
        runs = driver.state(self.id) is MachineState.RUNNING
        if runs and not driver.agent_responds(self.id, self.harness.boot_seconds):
            driver.destroy(self.id)
            runs = False
        if not runs:
            driver.start(self.id)
            driver.wait_ready(self.id, self.harness.boot_seconds)


@pytest.fixture(scope="session")
def real_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """One for all tests, as a boot takes longer than what most of them ask of it."""
    harness = pytest.importorskip("tests.vmbackend.libvirt_factory").make_harness(tmp_path_factory.mktemp("real"))
    try:
        made = Machine(harness, harness.running_machine(cmd=SECRET_COMMAND))
        harness.driver.close()
        yield made
    finally:
        harness.reopen_driver()
        harness.close()


@pytest.fixture
def snapshot_machine(real_machine: Machine) -> Iterator[Machine]:
    """The one machine, for tests that make snapshots of it."""
    with real_machine.opened():
        yield real_machine
        for name in real_machine.harness.driver.inventory().snapshots:
            real_machine.harness.driver.remove_snapshot(name)


@pytest.fixture(params=BACKENDS)
def machine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    if request.param == "libvirt":
        shared: Machine = request.getfixturevalue("real_machine")
        with shared.opened():
            yield shared
        return
    harness = make_harness(request.param, tmp_path, monkeypatch)
    try:
        yield Machine(harness, harness.running_machine(cmd=SECRET_COMMAND))
    finally:
        harness.close()


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path is short enough for the sockets of a machine."""
    folder = Path(tempfile.mkdtemp(prefix="mvt", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def libvirt_harness(tmp_path: Path) -> Iterator[Harness]:
    """For tests of the libvirt driver alone; most are of each driver and take `harness`."""
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    made = factory.make_harness(tmp_path)
    try:
        yield made
    finally:
        made.close()


async def write_content(session: GuestSession) -> Any:
    async def content() -> AsyncIterator[bytes]:
        yield b"content"

    return await session.write("/file", content())


async def read_content(session: GuestSession) -> bytes:
    """What `write_content` wrote."""
    return b"".join([chunk async for chunk in session.read("/file")])


@pytest.fixture
def hold(hold_program: Path, tmp_path: Path) -> Iterator[LocalHold]:
    made = LocalHold(hold_program, tmp_path / "hold")
    yield made
    made.close()
