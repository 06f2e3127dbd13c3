"""A vmhost that has a host's own role in the database: each of its threads, and no other, logs in as that host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from django.db import ProgrammingError, connections

from common.host_access.policies import apply_grants
from common.host_access.roles import create_host_role, drop_host_role
from tests.fakehost import NAME, FakeHost
from vmbackend.models import Host, new_host_id

# Sent to the queues of hosts.
OF_HOSTS = frozenset(
    f"workspaces.tasks.{name}"
    for name in (
        "run_operation",
        "reconcile_host",
        "remove_snapshots",
        "answer_boot_log",
        "apply_network",
        "answer_machine_info",
        "put_orphan_back",
        "remove_orphans",
    )
)
_current = threading.local()
# The statements that the database refused: much of vmhost logs an error and goes on.
refused: list[str] = []


@contextmanager
def logged_in(role: str) -> Iterator[Any]:
    """Make this thread's connection one of this role, within the block."""
    own = connections["default"]
    given = deepcopy(own.settings_dict)
    given["USER"] = role
    given["OPTIONS"].pop("pool", None)
    made = type(own)(given, "default")
    made.execute_wrappers.append(_note_refusal)
    connections["default"] = made
    _current.role = role
    try:
        yield made
    finally:
        _current.role = None
        made.close()
        connections["default"] = own


class ConfinedHost(FakeHost):
    """Make a `FakeHost` with a role; tasks of other processes run with that of the instance."""

    def __init__(self, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(state, monkeypatch)
        apply_grants()
        self.id = new_host_id()
        refused.clear()
        Host.objects.create(id=self.id, name=NAME, subnet="10.200.0.0/20")
        create_host_role(self.id)
        monkeypatch.setattr(threading.Thread, "start", _as_its_starter(threading.Thread.start))

    def start(self) -> None:
        with logged_in(self.id):
            super().start()

    def stop(self) -> None:
        super().stop()
        drop_host_role(self.id)

    def _submit(self, name: str, args: tuple[Any, ...], headers: dict[str, Any] | None = None) -> None:
        # The threads of the pool are not of the one that sends the task.
        role, _current.role = getattr(_current, "role", None), None
        try:
            super()._submit(name, args, headers)
        finally:
            _current.role = role

    def _run(self, name: str, args: tuple[Any, ...], headers: dict[str, Any]) -> None:
        if name not in OF_HOSTS:
            super()._run(name, args, headers)
            return
        with logged_in(self.id):
            super()._run(name, args, headers)


def _note_refusal(execute: Any, sql: str, *arguments: Any) -> Any:
    try:
        return execute(sql, *arguments)
    except ProgrammingError as exc:
        refused.append(f"{exc}: {sql}")
        raise


def _as_its_starter(start: Any) -> Any:
    def started(thread: threading.Thread) -> None:
        role = getattr(_current, "role", None)
        if role:
            run = thread.run

            def confined() -> None:
                with logged_in(role):
                    run()

            thread.run = confined  # type: ignore[method-assign]
        start(thread)

    return started
