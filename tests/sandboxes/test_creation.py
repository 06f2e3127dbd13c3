"""`POST /sandbox` (specification, Sandbox service; wire contract, section 4)."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from accounts.models import Plan
from credits.models import Service
from namespaces.models import Namespace
from sandboxes.models import Sandbox, SandboxEvent
from tests.callers import Caller
from tests.credits.test_ledger import charge, set_quota
from tests.fakehost import FakeHost
from tests.webhooks.outbox import passed_thresholds, subscribe
from tests.world import assert_error
from vmbackend.driver import MachineState
from vmbackend.errors import CapacityExceeded
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_created_sandbox_is_active_when_the_answer_comes(api: Caller, vmhost: FakeHost) -> None:
    answer = api.post("/sandbox", {"name": "First one"})
    assert answer.status_code == 201
    body = answer.json()
    sandbox = body["sandbox"]
    assert body["success"] is True
    assert re.fullmatch(r"sbx_[a-z2-7]{16}", sandbox["id"])
    assert sandbox["workspace_id"] == sandbox["id"].replace("sbx_", "ws_")
    assert sandbox["token"].startswith("sbt_")
    assert sandbox["url"].endswith(f"/s/{sandbox['id']}")
    assert (sandbox["name"], sandbox["status"], sandbox["namespace"]) == ("First one", "active", "default")
    assert sandbox["created_at"].endswith("Z")
    stored = Sandbox.objects.get()
    assert sandbox["token"] not in (stored.token_hash, stored.pk)
    row = Workspace.objects.get()
    assert (row.kind, row.mode) == ("sandbox", "permanent")


def test_a_sandbox_takes_the_options_of_a_workspace(api: Caller, vmhost: FakeHost) -> None:
    Namespace.objects.create(account=api.account, name="Team", slug="team")
    config = {"cpus": 0.5, "memory_mb": 128, "disk_size_mb": 256, "env": ["A=b"], "ttl": "1h"}
    body = {"name": "one", "image": "localhost/tiny:1", "namespace": "team", "config": config}
    sandbox = api.post("/sandbox", body).json()["sandbox"]
    assert (sandbox["image"], sandbox["namespace"]) == ("localhost/tiny:1", "team")
    row = Workspace.objects.get()
    assert (row.cpu_millis, row.memory_mb, row.env, row.ttl_seconds) == (500, 128, {"A": "b"}, 3600)
    assert row.mode == "temporary"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": 5}, 400, "validation_error"),
        ({"name": None}, 400, "validation_error"),
        ({"name": " "}, 400, "validation_error"),
        ({"name": "a" * 256}, 400, "INVALID_NAME_LENGTH"),
        ({"namespace": "no spaces"}, 400, "INVALID_NAMESPACE"),
        ({"namespace": "nowhere"}, 404, "not_found"),
        ({"image": ""}, 400, "INVALID_IMAGE"),
        ({"config": 5}, 400, "INVALID_CONFIG"),
        ({"config": {"memory_mb": "much"}}, 400, "INVALID_CONFIG"),
        ({"autoStart": "no"}, 400, "validation_error"),
        ({"template": 1}, 400, "validation_error"),
        ({"template": "unknown"}, 400, "validation_error"),
    ],
)
def test_a_bad_request_leaves_nothing(api: Caller, body: dict[str, Any], status: int, code: str) -> None:
    answer = api.post("/sandbox", {"name": "one", **body})
    assert_error(answer, status, code)
    if code == "validation_error":
        assert set(answer.json()["details"]) == set(body)
    assert not Workspace.objects.exists()
    assert not Sandbox.objects.exists()


def test_a_sandbox_without_a_name_is_refused(api: Caller) -> None:
    answer = api.post("/sandbox", {})
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {"name"}
    assert not Workspace.objects.exists()


def test_a_creation_that_a_used_up_quota_refuses_is_announced_as_that_of_a_workspace(api: Caller) -> None:
    namespace = Namespace.objects.get(is_default=True)
    charge(namespace, "5", Service.SANDBOX)
    subscribe(api.account)
    set_quota(namespace, "4", service=Service.SANDBOX, thresholds=[])
    for _ in range(2):
        assert_error(api.post("/sandbox", {"name": "one"}), 402, "quota_exceeded")
    assert passed_thresholds(api.account) == ["depleted"]


def test_without_auto_start_the_machine_is_made_and_stays_off(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/sandbox", {"name": "one", "autoStart": False})
    assert made.status_code == 201
    assert made.json()["sandbox"]["status"] == "stopped"
    row = Workspace.objects.get()
    assert vmhost.driver.state(row.pk) is MachineState.OFF
    assert (row.provisioning_state, row.ready, row.started_at) == ("ready", False, None)
    started = api.post(f"/sandbox/{made.json()['sandbox']['id']}/start")
    assert started.json()["sandbox"]["status"] == "active"
    assert vmhost.driver.state(row.pk) is MachineState.RUNNING


def test_without_auto_start_a_creation_that_is_tried_again_starts(api: Caller, vmhost: FakeHost) -> None:
    vmhost.driver.fail_next("prepare", CapacityExceeded("The host has no disk."))
    made = api.post("/sandbox", {"name": "one", "autoStart": False})
    assert_error(made, 500, "CREATE_FAILED")
    row = Workspace.objects.get()
    assert api.post(f"/workspace/{row.pk}/provisioning/retry").status_code == 202
    vmhost.settle()
    row.refresh_from_db()
    assert (row.status, row.ready, row.user_requested_stop) == ("running", True, False)


def test_without_waiting_the_answer_has_the_token_and_creation_goes_on(api: Caller, vmhost: FakeHost) -> None:
    vmhost.hold_tasks()
    made = api.post("/sandbox", {"name": "one", "wait_ready": False})
    assert made.status_code == 202
    sandbox = made.json()["sandbox"]
    assert sandbox["status"] == "creating"
    assert sandbox["token"]
    vmhost.release_tasks()
    vmhost.settle()
    assert api.get(f"/sandbox/{sandbox['id']}").json()["sandbox"]["status"] == "active"


def test_a_creation_that_fails_says_which_sandbox_it_was(api: Caller, vmhost: FakeHost) -> None:
    vmhost.driver.fail_next("start", CapacityExceeded("The host has no memory."))
    answer = api.post("/sandbox", {"name": "one"})
    assert_error(answer, 500, "CREATE_FAILED")
    shown = answer.json()["details"]["id"]
    assert api.get(f"/sandbox/{shown}").json()["sandbox"]["status"] == "failed"
    assert api.delete(f"/sandbox/{shown}").status_code == 200


def test_a_repeated_key_makes_one_sandbox_and_shows_its_token_once(api: Caller, vmhost: FakeHost) -> None:
    first = api.post("/sandbox", {"name": "one"}, Idempotency_Key="k")
    again = api.post("/sandbox", {"name": "one"}, Idempotency_Key="k")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again["Idempotent-Replay"] == "true"
    assert again.json()["sandbox"] == first.json()["sandbox"] | {"token": None}
    assert Sandbox.objects.count() == 1
    assert_error(api.post("/sandbox", {"name": "two"}, Idempotency_Key="k"), 409, "idempotency_conflict")
    for more in ({}, {"route": "sandbox"}):  # no route has this field
        other = api.post("/workspace", {"name": "one", **more}, Idempotency_Key="k")
        assert_error(other, 409, "idempotency_conflict")


def test_calls_at_once_with_one_key_make_one_sandbox_and_one_token(api: Caller, vmhost: FakeHost) -> None:
    def create(_: int) -> dict[str, Any]:
        try:
            answer = api.post("/sandbox", {"name": "one"}, Idempotency_Key="k")
            assert answer.status_code in (200, 201), answer.content
            made: dict[str, Any] = answer.json()["sandbox"]
            return made
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(create, range(12)))
    assert len({sandbox["id"] for sandbox in made}) == 1
    assert len([sandbox for sandbox in made if sandbox["token"] is not None]) == 1
    assert Sandbox.objects.count() == Workspace.objects.count() == 1
    assert SandboxEvent.objects.count() == 1


def test_creations_at_once_stay_within_the_plan(api: Caller, vmhost: FakeHost) -> None:
    Plan.objects.filter(pk=api.account.plan_id).update(max_workspaces=2)

    def create(number: int) -> int:
        try:
            return int(
                api.post("/sandbox" if number % 2 else "/workspace", {"name": "one", "wait_ready": False}).status_code
            )
        finally:
            connections.close_all()

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(create, range(8))) == [202] * 2 + [402] * 6
    assert Workspace.objects.count() == 2
