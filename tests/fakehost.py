"""A vmhost inside the test process: the real host runtime and engine over the fake driver; threads stand for Celery."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import current_app
from django.db import connections
from kombu.exceptions import OperationalError

from common import log_context
from common import redis as clients
from config.app_list import app_modules
from vmbackend.backend import guest_pool, machines_dir
from vmbackend.fake.driver import FakeDriver
from vmbackend.fake.images import FakeImageStore
from workspaces.host import process
from workspaces.host.runtime import HostRuntime

NAME = "local"
app_modules("tasks")  # registers the tasks


class Died(BaseException):
    """The process ends here: nothing that handles errors runs."""


class FakeHost:
    """`driver` has the knobs; `hold_tasks()` keeps sent tasks from being run until `release_tasks()`.

    While `redis_away` is set no task can be sent, and every other use of Redis fails as it does in an outage.
    """

    def __init__(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver = FakeDriver(machines_dir())
        self.images = FakeImageStore()
        self.pool = ThreadPoolExecutor(max_workers=8)
        self.submitted: list[Future[Any]] = []
        self.held_tasks: list[tuple[str, tuple[Any, ...], dict[str, Any]]] | None = None
        self._holding = threading.Lock()
        self.redis_away = False
        monkeypatch.setattr(current_app, "send_task", self._send_task)
        monkeypatch.setattr(process, "build_driver", lambda: self.driver)
        monkeypatch.setattr(process, "image_store", lambda: self.images)
        monkeypatch.setattr(clients, "_shared_client", self._unless_away(clients._shared_client))

    def start(self) -> None:
        """What the start of the process does: open the driver, reconcile, plan the restarts. Celery begins with its
        tasks after that.
        """
        self._end_sampler()
        is_held = self.held_tasks is not None
        if not is_held:
            self.hold_tasks()
        try:
            self.runtime: HostRuntime = process.open_host()
        finally:
            if not is_held:
                self.release_tasks()

    def stop(self) -> None:
        self.release_tasks()
        self.settle()
        process.close_host()  # what it writes at its end sends tasks
        self.pool.shutdown()
        guest_pool().close()
        self.driver.clear_failures()
        for machine in self.driver.inventory().ids():
            self.driver.delete(machine)
        for orphan in self.driver.kept_orphans():
            self.driver.remove_orphan(orphan.name)

    def hold_tasks(self) -> None:
        self.held_tasks = []

    def release_tasks(self) -> None:
        with self._holding:
            held, self.held_tasks = self.held_tasks or [], None
        for task in held:
            self._submit(*task)

    def settle(self) -> None:
        """Wait until every task sent so far has run. Raises what a task raised."""
        while self.submitted:
            self.submitted.pop(0).result(timeout=120)

    def settle_across_deaths(self) -> None:
        """As `settle`, with the process started again each time that a test lets it die."""
        while self.submitted:
            try:
                self.settle()
            except Died:
                self.driver.__dict__.pop("_remove", None)
                self.restart()

    def restart(self) -> None:
        """vmhost dies and comes back: what it held in memory is gone."""
        self.runtime.stop()
        self.start()

    def _end_sampler(self) -> None:
        """That of a process that died: its threads end, and nothing of what it measured is written."""
        sampler = process._sampler
        if sampler is not None:
            sampler._ended.set()
            sampler._thread.join()
            sampler.disks.stop()
            sampler.writer.stop()

    def begin_death(self) -> Died:
        """To raise in the middle of the driver's work: what handles errors there removes nothing any more."""
        self.driver._remove = lambda machine_id: None  # type: ignore[method-assign]
        return Died()

    def _unless_away(self, client: Callable[..., redis.Redis]) -> Callable[..., redis.Redis]:
        def reached(*args: Any) -> redis.Redis:
            if self.redis_away:
                raise redis.ConnectionError("Redis is away.")
            return client(*args)

        return reached

    def _send_task(self, name: str, args: Any = (), queue: str = "", **options: Any) -> None:
        if self.redis_away:
            raise OperationalError("The broker is away.")
        if queue == "webhooks":  # of another process
            return
        headers: dict[str, Any] = {"queue": queue}
        log_context.task_headers(headers)  # as Celery's signals do (config/celery.py)
        with self._holding:
            if self.held_tasks is not None:
                self.held_tasks.append((name, tuple(args), headers))
                return
        self._submit(name, tuple(args), headers)

    def _submit(self, name: str, args: tuple[Any, ...], headers: dict[str, Any] | None = None) -> None:
        self.submitted.append(self.pool.submit(self._run, name, args, headers or {}))

    def _run(self, name: str, args: tuple[Any, ...], headers: dict[str, Any]) -> None:
        log_context.begin_context(str(headers.get(log_context.HEADER) or ""))
        try:
            current_app.tasks[name](*args)
        finally:
            connections.close_all()
