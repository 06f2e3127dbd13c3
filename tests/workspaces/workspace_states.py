"""Bringing a real workspace on the fake driver into each state at rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Any

from common.capacity import CapacityUsedUp
from tests.callers import Caller
from tests.fakehost import FakeHost
from workspaces.models import Workspace
from workspaces.operations import waiting
from workspaces.power import workspace_sleep
from workspaces.states import Status

MISSING = "registry.test/missing"


def until(true: Callable[[], bool], seconds: float = 120) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def status_of(made: str) -> str:
    return Workspace.objects.get(pk=made).status


def make(api: Caller, vmhost: FakeHost, status: Status, **body: Any) -> str:
    """A workspace at rest in `status`; returns its id."""
    if status is Status.FAILED:
        made: str = api.post("/workspace", {"image": MISSING, **body}).json()["details"]["id"]
        return made
    made = api.post("/workspace", body).json()["workspace"]["id"]
    bring(api, vmhost, made, status)
    assert status_of(made) == status
    return made


def bring(api: Caller, vmhost: FakeHost, made: str, status: Status) -> None:
    """From running to another state at rest."""
    calls = {Status.STOPPED: "stop", Status.PAUSED: "pause"}
    if status in calls:
        assert api.post(f"/workspace/{made}/{calls[status]}").status_code == 200
    elif status is Status.DESTROYED:
        assert api.delete(f"/workspace/{made}/lifecycle").status_code == 200
    elif status is Status.SLEEPING:
        workspace_sleep(workspace=Workspace.objects.get(pk=made), actor="test")
        vmhost.settle()
    elif status is Status.LOST:
        vmhost.driver.lose_machine(made)
        until(lambda: status_of(made) == Status.LOST)


@contextmanager
def no_free_waiting_place() -> Iterator[None]:
    """As many requests wait as may: the next one is answered with 202 at once."""
    capacity = waiting.waiting_capacity()
    with ExitStack() as taken:
        with suppress(CapacityUsedUp):
            for number in count():
                taken.enter_context(capacity.reserve(f"account {number}"))
        yield
