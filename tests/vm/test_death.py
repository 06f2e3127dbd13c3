"""kill -9 and outages at the worst moments: everything comes back, workspaces settle, running machines notice nothing.

The fixture `clean` looks after each test: the witness machine has not been touched, and two turns of the reconciliation
later the host holds what the rows say and nothing else.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from supervise import control
from tests.run_extent import campaign_after
from tests.vm.client import Api, until
from tests.vm.conftest import Witness, end_of_test
from tests.vm.instances import TestInstance, is_alive
from tests.vm.onhost import machine_pids

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]
OUTAGE_SECONDS = 10
ATTEMPTS = 3  # a busy host may claim one of some operations late


@pytest.fixture
def clean(instance: TestInstance, api: Api, witness: Witness, kept: list[str]) -> Iterator[None]:
    yield
    end_of_test(instance, api, witness, kept)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


def begin_stop(pool: ThreadPoolExecutor, api: Api, workspace_id: str) -> None:
    """Request the stop from a thread; the response is not checked."""
    pool.submit(api.http.post, f"/workspace/{workspace_id}/stop")
    until(lambda: api.get(workspace_id)["status"] == "stopping", 10, "the workspace is stopping")


@pytest.mark.parametrize(
    ("creating", "stopping"),
    [("prepare_machine", "shut_down"), pytest.param("wait_ready", "complete", marks=pytest.mark.campaign)],
)
def test_vmhost_dies_in_the_middle_of_a_create_and_of_a_stop(
    instance: TestInstance, api: Api, pool: ThreadPoolExecutor, running: str, creating: str, stopping: str
) -> None:
    with instance.held(f"create.{creating}", f"stop.{stopping}"):
        made = api.begin_create()
        begin_stop(pool, api, running)
        instance.wait_for_step(made, f"create.{creating}")
        instance.wait_for_step(running, f"stop.{stopping}")
        instance.kill("vmhost")
    assert api.settles(running)["status"] == "stopped"
    row = api.settles(made)
    assert (row["status"], row["ready"], row["provisioning"]["attempts"]) == ("running", True, 2)
    assert api.output(made, "echo works") == "works"
    api.power(running, "start")
    assert api.output(running, "echo works") == "works"


@pytest.mark.parametrize("seconds", campaign_after(1, [0.3, 1.2]))
def test_vmhost_dies_at_any_moment_of_a_create(instance: TestInstance, api: Api, seconds: float) -> None:
    made = api.begin_create()
    time.sleep(seconds)
    instance.kill("vmhost")
    assert api.settles(made)["status"] == "running"
    assert api.output(made, "echo works") == "works"


def test_a_machine_dies_in_the_middle_of_its_create_and_another_in_that_of_its_stop(
    instance: TestInstance, api: Api, pool: ThreadPoolExecutor, running: str
) -> None:
    with instance.held("create.wait_ready", "stop.shut_down"):
        made = api.begin_create()
        begin_stop(pool, api, running)
        instance.wait_for_step(made, "create.wait_ready")
        instance.wait_for_step(running, "stop.shut_down")
        pids = machine_pids(instance)
        os.kill(pids[made], signal.SIGKILL)
        os.kill(pids[running], signal.SIGKILL)
        until(lambda: not {made, running} & machine_pids(instance).keys(), 10, "both machines are gone")
    assert api.settles(running)["status"] == "stopped"
    assert api.settles(made)["status"] == "running"
    assert api.output(made, "echo works") == "works"


def test_a_running_machine_that_dies_is_stopped_and_starts_again(
    instance: TestInstance, api: Api, running: str
) -> None:
    api.output(running, "echo kept >/root/kept; sync")
    os.kill(machine_pids(instance)[running], signal.SIGKILL)
    row = until(lambda: (r := api.get(running))["status"] != "running" and r, 10, "the death is seen")
    assert row["status"] == "stopped"
    assert row["info"]["user_requested_stop"] is False
    assert instance.query(f"SELECT last_exit_reason FROM workspaces_workspace WHERE id = '{running}'") == [("crashed",)]
    api.power(running, "start")
    assert api.output(running, ["cat", "/root/kept"]) == "kept"


def test_api_streams_and_worker_die_in_the_middle_of_a_create_and_of_a_stop(
    instance: TestInstance, api: Api, pool: ThreadPoolExecutor, running: str
) -> None:
    with instance.held("create.wait_ready", "stop.shut_down"):
        made = api.begin_create()
        begin_stop(pool, api, running)
        pool.submit(api.http.get, f"/workspace/{made}/logs")
        instance.wait_for_step(made, "create.wait_ready")
        instance.wait_for_step(running, "stop.shut_down")
        instance.kill("api", "streams", "worker")
        assert api.get(made)["status"] == "creating"
        assert api.get(running)["status"] == "stopping"
    assert api.settles(running)["status"] == "stopped"
    row = api.settles(made)
    assert (row["status"], row["provisioning"]["attempts"]) == ("running", 1)
    assert api.output(made, "echo works") == "works"


def test_every_other_process_is_restarted(instance: TestInstance, api: Api) -> None:
    instance.kill("redis", "beat", "edge")
    made = api.patiently("POST", "/workspace", 201, json={"image": "localhost/tests-busybox:1", "memory_mb": 128})
    assert api.output(made["workspace"]["id"], "echo works") == "works"


def test_the_next_up_takes_over_what_a_killed_supervisor_left(instance: TestInstance, api: Api) -> None:
    orphans, supervisor = instance.pids(), control.supervisor_pid(instance.instance)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    assert api.rows(), "the processes go on without it"
    instance.start()
    assert not [name for name, pid in orphans.items() if is_alive(pid)]
    assert instance.pids().keys() == orphans.keys()


def test_a_redis_that_is_gone_for_ten_seconds_delays_a_create_and_breaks_nothing(
    instance: TestInstance, api: Api
) -> None:
    with instance.held("create.start_machine"):
        begun = api.begin_create()
        instance.wait_for_step(begun, "create.start_machine")
        before = instance.pids()
        with instance.without("redis"):
            time.sleep(OUTAGE_SECONDS / 2)
            queued = api.begin_create()
            time.sleep(OUTAGE_SECONDS / 2)
    for made in (begun, queued):
        assert api.settles(made)["status"] == "running"
        assert api.output(made, "echo works") == "works"
    instance.wait_until_running()
    after = instance.pids()
    assert {name for name in before if after[name] != before[name]} == {"redis"}, "only Redis was started again"
    assert any(is_woken(instance, api, begun) for _ in range(ATTEMPTS)), "wake-ups work again"


def is_woken(instance: TestInstance, api: Api, workspace_id: str) -> bool:
    """Whether an operation was claimed by its first notification, not by that which the maintenance thread repeats."""
    api.power(workspace_id, "restart")
    return instance.query(
        "SELECT notified_at = created_at FROM workspaces_operation "
        f"WHERE workspace_id = '{workspace_id}' AND kind = 'restart' ORDER BY created_at DESC LIMIT 1"
    ) in ([(1,)], [(True,)])


def test_a_redis_that_does_not_answer_for_ten_seconds_breaks_nothing(
    instance: TestInstance, api: Api, pool: ThreadPoolExecutor
) -> None:
    before = instance.pids()
    with instance.held("create.wait_ready"):
        made = api.begin_create()
        instance.wait_for_step(made, "create.wait_ready")
        with instance.frozen("redis"):
            time.sleep(OUTAGE_SECONDS)
    assert api.settles(made)["status"] == "running"
    assert api.output(made, "echo works") == "works"
    assert instance.pids() == before
