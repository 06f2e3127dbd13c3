"""Redis, the hypervisor's connection or a whole host goes away for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from tests import environment
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.fault_cases import CASES, Case
from vmbackend.errors import BackendUnavailable
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def stop_redis() -> Iterator[Callable[[], None]]:
    """Kills the tests' Redis when called; it is there again afterwards."""

    def stop() -> None:
        process = environment._redis.pop()
        process.kill()
        process.wait()
        environment.SOCKET.unlink(missing_ok=True)

    yield stop
    if not environment._redis:
        environment._redis.append(environment.start_redis())


def test_a_request_is_answered_by_the_row_without_redis(
    api: Caller, vmhost: FakeHost, stop_redis: Callable[[], None]
) -> None:
    stop_redis()
    began = time.monotonic()
    answer = api.post("/workspace", {})
    assert answer.status_code == 201
    path = f"/workspace/{answer.json()['workspace']['id']}"
    assert api.post(f"{path}/stop").json()["workspace"]["info"]["status"] == "stopped"
    vmhost.settle()
    answer = api.get(f"{path}/logs")
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    for task in vmhost.submitted:
        assert task.exception(timeout=10)  # the host could not send the log either
    vmhost.submitted.clear()
    assert api.delete(path).status_code == 200
    assert time.monotonic() - began < 10
    assert api.client.get("/healthz").json() == {"success": True, "database": True, "redis": False}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_operation_goes_on_while_redis_is_really_away(
    api: Caller, vmhost: FakeHost, stop_redis: Callable[[], None], case: Case
) -> None:
    made = fault_cases.begin(vmhost, api.account, case)
    stop_redis()
    vmhost.redis_away = True  # the task queue of these tests is a thread pool, which an outage does not stop
    vmhost.release_tasks()
    vmhost.settle_across_deaths()
    environment._redis.append(environment.start_redis())
    vmhost.redis_away = False
    fault_cases.come_to_rest(vmhost)
    assert fault_cases.inconsistencies(vmhost, made) == []
    row = Workspace.objects.filter(pk=made).first()
    assert (row and row.status) == case.ends


def test_a_hypervisor_that_does_not_answer_is_reported_before_anything_is_made(api: Caller, vmhost: FakeHost) -> None:
    vmhost.driver.fail_next("state", BackendUnavailable("The hypervisor is not connected."))
    vmhost.runtime.send_heartbeat()
    answer = api.post("/workspace", {})
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    vmhost.runtime.send_heartbeat()
    assert api.post("/workspace", {}).status_code == 201
