"""Whole instances of the platform for the tests: real processes, real machines, a state folder and a port of their own.

Whatever becomes of the test run, nothing of an instance outlives it: the fixtures end it, and where they cannot (the
run was killed), a watcher process that waits for the end of the run does (instance_watcher.py).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import xmlrpc.client
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from supervisor.xmlrpc import SupervisorTransport

from supervise import control
from supervise.configuration import process_environment
from supervise.demo import wait_until_serving
from supervise.files import read_env_file
from supervise.instance import ROOT, Instance, load_instance
from supervise.orphans import DATABASE_ROLE, MARKER, ROLE, environment_of
from supervise.postgres import data_folder
from supervise.postgres_processes import server_processes
from supervise.prepare import prepare_instance
from supervise.removal import remove_instance
from tests.cache import CACHE, KIT_DIR
from tests.free_ports import free_port
from tests.migrated_database import put_migrated_data
from tests.vm.client import Api, until
from tests.vm.images import add_images
from tests.vm.outside import addresses

RECONCILE_SECONDS = 3
# Of a hang: with eight busy processes beside it on two cores an instance was there after a minute and a half.
START_SECONDS = 300.0
# The first `up` of a host builds the guest kit and the default image.
COMMAND_SECONDS = 840.0
SETTINGS = {
    "PLATFORM_CACHE_DIR": str(CACHE),
    "PLATFORM_KIT_DIR": str(KIT_DIR),
    "PLATFORM_RECONCILE_SECONDS": str(RECONCILE_SECONDS),
    "PLATFORM_ORPHAN_GRACE_SECONDS": "2",
    # Each instance would make its own, which costs more than its few starts win.
    "PLATFORM_BOOT_TEMPLATES": "0",
    "PLATFORM_POOL_MEMORY_MB": "0",
    # No image that `prepare` would build: the tests name theirs.
    "PLATFORM_DEFAULT_IMAGE": "registry.invalid/none:latest",
}


class TestInstance:
    """One instance. `settings` are its processes' `PLATFORM_*` variables beyond what it derives itself."""

    __test__ = False

    def __init__(self, folder: Path, *, port: int | None = None, **settings: str) -> None:
        self.instance: Instance = load_instance(folder / "s", port or free_port())
        self.faults = folder / "faults"
        self.faults.mkdir()
        # Only the namespace that stands for the internet resolves names; while there is none, no name resolves.
        resolver = {"PLATFORM_GUEST_DNS": addresses(self.instance.id).address}
        given = {**SETTINGS, "PLATFORM_FAULTS": str(self.faults), **resolver, **settings}
        self.settings = self.instance.settings(given)

    @property
    def id(self) -> str:
        return self.instance.id

    @property
    def state(self) -> Path:
        return self.instance.state

    def start(self) -> None:
        """Start every process; returns when the API answers and the host takes machines."""
        if self.settings.has_own_server:
            put_migrated_data(data_folder(self.instance))
        prepare_instance(self.instance, self.settings)
        self.start_processes()
        self.wait_until_serving()

    def start_processes(self) -> None:
        with control.exclusive_control(self.instance):
            control.start_supervisord(self.instance, self.settings, tied=False)

    def wait_until_serving(self) -> None:
        serving = wait_until_serving(self.settings.base_url, START_SECONDS)
        assert serving, "\n".join(f"{row.name} {row.state}" for row in control.process_states(self.instance))
        self.wait_until_running()
        until(
            lambda: self.query("SELECT name FROM vmbackend_host WHERE problem = ''"), START_SECONDS, "the host is ready"
        )

    def stop(self) -> None:
        with control.exclusive_control(self.instance):
            control.stop_instance(self.instance, lambda _: None)

    def command(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`make NAME` without the installation of packages."""
        environment = process_environment(self.instance, self.settings)
        command = [sys.executable, "-m", "supervise", name, *arguments]
        return subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )

    def api(self) -> Api:
        known = read_env_file(self.instance.credentials_file)
        return Api(self.settings.base_url, known["CLIENT_ID"], known["CLIENT_SECRET"])

    def pids(self) -> dict[str, int]:
        """The supervised processes that are up."""
        return {row.name: row.pid for row in control.process_states(self.instance) if row.state == "RUNNING"}

    def _started_pids(self) -> dict[str, int]:
        """As `pids`, also of those that have not run for long enough to count as up."""
        return {row.name: row.pid for row in control.process_states(self.instance) if row.pid}

    def process_tree(self) -> dict[int, str]:
        """Every process of the instance with the name of the supervised one it belongs to; no machine among them."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            values = environment_of(int(entry.name))
            if values.get(MARKER) == self.id and ROLE in values:
                found[int(entry.name)] = values[ROLE]
        return found | dict.fromkeys(server_processes(data_folder(self.instance)), DATABASE_ROLE)

    def kill(self, *names: str) -> None:
        """kill -9 of supervised processes, then wait until each has been started again by itself.

        Not until the supervisor calls it running, for which it must have lived some seconds (`wait_until_running`).
        """
        before = self._started_pids()
        for name in names:
            os.kill(before[name], signal.SIGKILL)

        def started_again() -> bool:
            now = self._started_pids()
            return all(now.get(name) not in (None, before[name]) for name in names)

        until(started_again, START_SECONDS, f"{', '.join(names)} come back")

    def wait_until_running(self) -> None:
        def all_up() -> bool:
            rows = control.process_states(self.instance)
            return bool(rows) and all(row.state == "RUNNING" for row in rows)

        until(all_up, START_SECONDS, "every process is up")

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """A process stopped by its supervisor, and started again at the end."""
        self._supervisor("stopProcess", name)
        try:
            yield
        finally:
            self._supervisor("startProcess", name)

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """A process that exists and does not answer."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def held(self, *points: str) -> Iterator[None]:
        """Operations wait before these steps (`create.wait_ready`) until the end of the block."""
        files = [self.faults / f"{point}.wait" for point in points]
        for file in files:
            file.touch()
        try:
            yield
        finally:
            for file in files:
                file.unlink(missing_ok=True)

    def wait_for_step(self, workspace_id: str, point: str) -> None:
        """Wait until the workspace's operation has reached a step."""
        kind, _, step = point.partition(".")
        sql = "SELECT step FROM workspaces_operation WHERE workspace_id = '{}' AND kind = '{}' AND state = 'running'"
        until(lambda: (step,) in self.query(sql.format(workspace_id, kind)), 60, f"{workspace_id} comes to {point}")

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Read the instance's database directly; a server that starts again is waited for."""
        return until(lambda: self._rows(sql), 60, "the database answers")[0]

    def _rows(self, sql: str) -> list[list[tuple[Any, ...]]]:
        try:
            with psycopg.connect(self.settings.database_url) as connection:
                return [connection.execute(sql.encode()).fetchall()]
        except psycopg.OperationalError:
            return []

    def remove(self) -> None:
        """Remove all of it: processes, machines, bridge, firewall, files, database. Idempotent."""
        if not self.state.exists():
            return
        self.stop()
        remove_instance(self.instance, lambda _: None)

    def _supervisor(self, method: str, name: str) -> None:
        transport = SupervisorTransport(None, None, f"unix://{self.instance.run_dir}/supervisor.sock")
        proxy = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
        getattr(proxy.supervisor, method)(name)


@contextmanager
def new_instance(
    parent: Path = Path("/tmp"),
    *,
    images: bool = True,
    kind: Callable[..., TestInstance] = TestInstance,
    **settings: str,
) -> Iterator[TestInstance]:
    """An instance that is not started yet, in a folder of `parent`; removed at the end, however the run ends. `images`:
    with those of the tests in its local store.
    """
    # Short: socket paths have 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="mvi-", dir=parent))
    try:
        with instance_in(folder, images=images, kind=kind, **settings) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def instance_in(
    folder: Path, *, images: bool = True, kind: Callable[..., TestInstance] = TestInstance, **settings: str
) -> Iterator[TestInstance]:
    """The same in a folder of the caller's, who removes it; where the run is killed, it is removed and unmounted."""
    with watched(folder):
        made = kind(folder, **settings)
        try:
            if images:
                add_images(made.settings.images_dir / "oci", folder)
            yield made
        finally:
            made.remove()


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """A watcher waits at the other end of a pipe, which the kernel closes when this process ends in any way."""
    # Without the mark of a CI run, whose sweep would end the watcher before it has done its work.
    environment = {key: value for key, value in os.environ.items() if key != "PLATFORM_CI_RUN"}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'platform'}"
    watcher = subprocess.Popen(
        [sys.executable, "-m", "tests.vm.instance_watcher", str(folder)],
        stdin=subprocess.PIPE,
        cwd=ROOT,
        env=environment,
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait(60)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for has no command line any more."""
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False
