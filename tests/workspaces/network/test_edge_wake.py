"""Authorization requests that wake a sleeping workspace, and what keeps one awake."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.test import AsyncClient
from django.utils import timezone

from common.redis import redis_client
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.network.edge_requests import WAKE, heads
from tests.workspaces.workspace_states import bring, make
from vmbackend.errors import BackendUnavailable
from workspaces import last_used
from workspaces.host.sweep import sweep_due
from workspaces.models import Operation, PublicPort, Workspace
from workspaces.models.operation import OperationKind
from workspaces.models.workspace import Mode
from workspaces.states import Status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fresh_edge_state")]


@pytest.fixture
def asleep(api: Caller, vmhost: FakeHost) -> PublicPort:
    """A real workspace on the fake driver, asleep, with a public port."""
    made = make(api, vmhost, Status.RUNNING, slug="the-box", mode="permanent")
    assert api.post("/workspace/the-box/public-access", {"port": 8080}).status_code == 201
    Workspace.objects.filter(pk=made).update(suspend_after=600)
    bring(api, vmhost, made, Status.SLEEPING)
    return PublicPort.objects.get()


def storm(name: str, count: int) -> list[Any]:
    async def all_of_them() -> list[Any]:
        client = AsyncClient()
        return list(await asyncio.gather(*(client.get(WAKE, headers=heads(name)) for _ in range(count))))

    return asyncio.run(all_of_them())


def wakes() -> int:
    return Operation.objects.filter(kind=OperationKind.WAKE).count()


def test_a_request_wakes_a_sleeping_workspace_and_is_then_admitted(vmhost: FakeHost, asleep: PublicPort) -> None:
    (answer,) = storm(f"{asleep.hash}.localhost", 1)
    row = Workspace.objects.get()
    assert (answer.status_code, answer["X-Upstream"]) == (200, f"{row.ip}:8080")
    assert (row.status, row.ready, vmhost.driver.resync_count(row.pk)) == ("running", True, 1)
    assert last_used.last_used(row.pk) > 0


def test_a_storm_makes_one_wake_and_all_are_admitted(vmhost: FakeHost, asleep: PublicPort) -> None:
    vmhost.driver.delays["start"] = 0.5
    answers = storm(f"{asleep.hash}.localhost", 100)
    assert {answer.status_code for answer in answers} == {200}
    assert wakes() == 1


def test_a_failed_wake_is_reported_and_the_next_request_tries_again(vmhost: FakeHost, asleep: PublicPort) -> None:
    vmhost.driver.fail_next("start", BackendUnavailable("The hypervisor is away."), times=3)
    (answer,) = storm(f"{asleep.hash}.localhost", 1)
    assert (answer.status_code, answer["Retry-After"]) == (503, "2")
    assert Workspace.objects.get().status == Status.SLEEPING
    (answer,) = storm(f"{asleep.hash}.localhost", 1)
    assert answer.status_code == 200


def test_a_workspace_stopped_in_its_sleep_is_reported(api: Caller, vmhost: FakeHost, asleep: PublicPort) -> None:
    assert api.post("/workspace/the-box/stop").status_code == 200
    (answer,) = storm(f"{asleep.hash}.localhost", 1)
    assert (answer.status_code, answer.json()["code"]) == (503, "workspace_not_running")
    assert "does not run" in answer.json()["message"]
    assert wakes() == 0


def test_a_closed_port_wakes_no_workspace(api: Caller, vmhost: FakeHost, asleep: PublicPort) -> None:
    api.send("PATCH", "/workspace/the-box/network", {"public_access": False})
    (answer,) = storm(f"{asleep.hash}.localhost", 1)
    assert (answer.status_code, wakes(), Workspace.objects.get().status) == (404, 0, "sleeping")


def test_an_open_connection_keeps_a_workspace_awake(api: Caller, vmhost: FakeHost) -> None:
    made = make(api, vmhost, Status.RUNNING)

    def idle_is_over() -> Workspace:
        due = {"mode": Mode.PERMANENT, "suspend_after": 120, "idle_due_at": timezone.now() - timedelta(seconds=1)}
        Workspace.objects.filter(pk=made).update(**due)
        redis_client().delete(last_used._key(made))
        sweep_due()
        vmhost.settle()
        return Workspace.objects.get(pk=made)

    vmhost.driver.connections[made] = [8080]
    row = idle_is_over()
    assert row.status == Status.RUNNING
    assert row.idle_due_at is not None
    assert row.idle_due_at > timezone.now()
    assert last_used.is_in_use(made, 60)
    vmhost.driver.connections[made] = []
    assert idle_is_over().status == Status.SLEEPING
