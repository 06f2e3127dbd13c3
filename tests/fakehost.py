"""A vmhost inside the test process: the real host side and engine over the fake driver; Celery's bell is a thread."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.db import connections

from vmbackend.backend import guest_pool, machines_dir
from vmbackend.fake import FakeDriver
from vmbackend.fake_images import FakeImageStore
from workspaces import tasks, vmhost  # noqa: F401 registers the tasks
from workspaces.operations.hostside import HostSide
from workspaces.services.exits import machine_event

NAME = "local"


class FakeHost:
    """`driver` has the knobs; `hold()` keeps bells from being heard until `release()`."""

    def __init__(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = FakeDriver(machines_dir())
        self.images = FakeImageStore()
        self.pool = ThreadPoolExecutor(max_workers=8)
        self.rung: list[Future[Any]] = []
        self.held: list[tuple[str, tuple[Any, ...]]] | None = None
        monkeypatch.setattr(current_app, "send_task", self._bell)

    def start(self) -> None:
        self.side = HostSide(name=NAME, subnet="10.200.0.0/20", driver=self.driver, images=self.images)  # type: ignore[arg-type]
        self.side.start(machine_event)
        vmhost._side = self.side

    def stop(self) -> None:
        self.release()
        self.settle()
        self.pool.shutdown()
        self.side.stop()
        vmhost._side = None
        guest_pool().close()
        for machine in self.driver.inventory().ids():
            self.driver.delete(machine)

    def hold(self) -> None:
        self.held = []

    def release(self) -> None:
        held, self.held = self.held or [], None
        for name, args in held:
            self._submit(name, args)

    def settle(self) -> None:
        """Until every bell so far was answered. Raises what a task raised."""
        while self.rung:
            self.rung.pop(0).result(timeout=30)

    def restart(self) -> None:
        """vmhost dies and comes back: what it held in memory is gone."""
        self.side.stop()
        self.start()
        vmhost.reconcile(self.side)

    def _bell(self, name: str, args: Any = (), queue: str = "", **options: Any) -> None:
        if self.held is not None:
            self.held.append((name, tuple(args)))
            return
        self._submit(name, tuple(args))

    def _submit(self, name: str, args: tuple[Any, ...]) -> None:
        self.rung.append(self.pool.submit(self._run, name, args))

    def _run(self, name: str, args: tuple[Any, ...]) -> None:
        try:
            current_app.tasks[name](*args)
        finally:
            connections.close_all()
