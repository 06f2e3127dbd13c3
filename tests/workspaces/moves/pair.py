"""Two vmhosts in one process, each over a fake driver of its own, that copy snapshots from folder to folder."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from tests.fakehost import FakeHost
from vmbackend.errors import BackendUnavailable, DeadlineExceeded
from vmbackend.fake.driver import FakeDriver
from vmbackend.fake.images import FakeImageStore
from vmbackend.models import Host
from workspaces import tasks
from workspaces.host import process, runtime
from workspaces.host.machine_events import handle_machine_event
from workspaces.host.runtime import HostRuntime
from workspaces.moves.commits import commit_ready_moves

SECOND = "second"
SUBNET = "10.77.0.0/20"
_here = threading.local()


class FolderTransfers:
    """Copies between the hosts of this process. `before_fetch` is called with each offer's id."""

    def __init__(self, offers: dict[str, Path]) -> None:
        self._offers = offers
        self.before_fetch: Callable[[str], None] = lambda offer_id: None
        self.fetched: list[str] = []
        # For each offer, the files that were there already.
        self.went_on_with: dict[str, set[str]] = {}

    def start(self) -> None:
        """Nobody has to be let in."""

    def stop(self) -> None:
        """Nobody was let in."""

    def offer(self, offer_id: str, folder: Path, to: Host) -> None:
        self._offers[offer_id] = folder

    def withdraw(self, offer_id: str) -> None:
        self._offers.pop(offer_id, None)

    def fetch(
        self,
        offer_id: str,
        into: Path,
        source: Host,
        *,
        max_bytes: int,
        max_file_bytes: int,
        on_progress: Callable[[int], None],
        give_up: Callable[[], bool],
    ) -> None:
        self.before_fetch(offer_id)
        if give_up():
            raise DeadlineExceeded("Given up.")
        found = self._offers.get(offer_id)
        if found is None:
            raise BackendUnavailable("There is no such offer.")
        self.went_on_with[offer_id] = {path.name for path in into.iterdir()}
        shutil.copytree(found, into, dirs_exist_ok=True)
        self.fetched.append(offer_id)
        on_progress(sum(path.stat().st_size for path in into.rglob("*") if path.is_file()))


class PairOfHosts(FakeHost):
    """`FakeHost` is the first; `second` is the runtime of the other one. A task runs on the host of its queue."""

    second: HostRuntime
    holds_commits = False

    def __init__(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(state, monkeypatch)
        folder = self.driver._store.root
        self.second_driver = FakeDriver(folder.with_name(f"{folder.name}-second"))
        monkeypatch.setattr(tasks, "host_runtime", self._runtime_here)
        self._offers: dict[str, Path] = {}
        self._patch = monkeypatch
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._commit_moves, daemon=True)

    def start(self) -> None:
        """Start the first host, and once the second and what the beat does for moves."""
        self.transfers = FolderTransfers(self._offers)
        self._patch.setattr(runtime, "host_transfers", lambda: self.transfers)
        super().start()
        if not hasattr(self, "second"):
            self.start_second()
            self._beat.start()

    def start_second(self) -> None:
        """Do what the start of the second host's process does."""
        self.second_transfers = FolderTransfers(self._offers)
        self._patch.setattr(runtime, "host_transfers", lambda: self.second_transfers)
        self.second = HostRuntime(
            name=SECOND,
            subnet=SUBNET,
            driver=self.second_driver,
            images=FakeImageStore(),  # type: ignore[arg-type]
        )
        self.second.start(partial(handle_machine_event, host_id=self.second.host_id))
        process.reconcile_rows_and_machines(self.second)

    def restart_second(self) -> None:
        """The second vmhost dies and comes back."""
        self.second.stop()
        self.start_second()

    def _commit_moves(self) -> None:
        while not self._ended.wait(0.1):
            if not self.holds_commits:
                commit_ready_moves()
        connections.close_all()

    def stop(self) -> None:
        """End both hosts, whose machines go, and the beat."""
        self._ended.set()
        self._beat.join()
        super().stop()
        self.second.stop()
        self.second_driver.clear_failures()
        self.second_driver.set_lacks()
        for machine in self.second_driver.inventory().ids():
            self.second_driver.delete(machine)

    def reconcile(self) -> None:
        """Reconcile both hosts once."""
        for each in (self.runtime, self.second):
            process.reconcile_rows_and_machines(each)

    def _runtime_here(self) -> HostRuntime:
        queue = getattr(_here, "queue", "")
        return self.second if queue == self.second.queue_name else process.host_runtime()

    def _run(self, name: str, args: tuple[Any, ...], headers: dict[str, Any]) -> None:
        _here.queue = headers.get("queue", "")
        super()._run(name, args, headers)
