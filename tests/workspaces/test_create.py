"""`POST /workspace` (specification, Workspaces; Errors, Workspace create)."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pytest
from django.db import connections

from accounts.scopes import Scope
from namespaces.models import Namespace
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_host
from workspaces.crud import views
from workspaces.models import Operation, Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_created_workspace_is_ready_when_the_answer_comes(api: Caller, vmhost: FakeHost) -> None:
    answer = api.post("/workspace", {"name": "First one", "image": "localhost/tiny:1"})
    body = answer.json()
    assert answer.status_code == 201
    workspace = body["workspace"]
    assert body["success"] is True
    assert re.fullmatch(r"ws_[a-z2-7]{16}", workspace["id"])
    assert (workspace["name"], workspace["slug"], workspace["namespace"]) == (
        "First one",
        "first-one",
        "default",
    )
    assert (workspace["mode"], workspace["info"]["status"], workspace["ready"]) == (
        "temporary",
        "running",
        True,
    )
    assert workspace["resources"] == {"cpus": 1, "memory_mb": 512, "disk_size_mb": 512}
    assert workspace["provisioning"]["state"] == "ready"
    assert workspace["provisioning"]["progress"] == 100
    assert workspace["start_time"].endswith("Z")


def test_sizes_beside_the_config_have_short_names_too(api: Caller, vmhost: FakeHost) -> None:
    sent = {"vcpus": 2, "ram_mb": 768, "disk_mb": 1024, "config": {"memory_mb": 640}}
    workspace = api.post("/workspace", sent).json()["workspace"]
    assert workspace["resources"] == {"cpus": 2, "memory_mb": 640, "disk_size_mb": 1024}


def test_without_waiting_the_answer_is_202_and_creation_goes_on(api: Caller, vmhost: FakeHost) -> None:
    vmhost.hold_tasks()
    answer = api.post("/workspace", {"wait_ready": False})
    body = answer.json()
    assert answer.status_code == 202
    assert body["ready"] is False
    assert body["id"] == body["workspace"]["id"]
    assert body["provisioning"]["state"] == "queued"
    vmhost.release_tasks()
    vmhost.settle()
    assert api.get(f"/workspace/{body['id']}").json()["workspace"]["ready"] is True


def test_a_wait_that_runs_out_answers_202(api: Caller, vmhost: FakeHost) -> None:
    vmhost.hold_tasks()
    answer = api.post("/workspace", {"ready_timeout_seconds": 1})
    assert answer.status_code == 202
    assert answer.json()["ready"] is False


def test_all_fields_are_stored_and_returned(api: Caller, vmhost: FakeHost) -> None:
    config = {
        "cpus": 0.5,
        "memory_mb": 256,
        "disk_size_mb": 128,
        "ttl": "90m",
        "ttl_action": "pause",
        "remove_on_exit": True,
        "restart_policy": "on-failure",
        "max_restarts": 3,
        "keep_logs": False,
        "static_network": True,
        "network_config": {"allow_internet": False, "public_ingress": True},
        "ssh_access": True,
        "env": [{"key": "A", "value": "secret-1"}, "B=x=y"],
        "workloads": [{"name": "web", "cmd": ["sleep", "9"], "env": ["T=secret-2"]}],
        "wait_for_init": True,
    }
    created = api.post("/workspace", {"slug": "described", "config": config}).json()["workspace"]
    details = api.get("/workspace/described/details").json()
    assert created["network"]["allow_internet"] is False
    assert created["network"]["public_access"] is True
    assert created["access"]["ssh_enabled"] is True
    shown = details["config"]
    assert (shown["cpus"], shown["ttl"], shown["ttl_action"], shown["max_restarts"]) == (
        0.5,
        5400,
        "pause",
        3,
    )
    assert [item["key"] for item in shown["env"]] == ["A", "B"]
    assert details["lifecycle"]["ttl"] == "90m"
    assert "secret-" not in str(details)
    assert Workspace.objects.get().env == {"A": "secret-1", "B": "x=y"}


def test_the_environment_is_encrypted_at_rest(api: Caller, vmhost: FakeHost) -> None:
    api.post("/workspace", {"config": {"env": ["TOKEN=plain-to-see"]}})
    with connections["default"].cursor() as cursor:
        cursor.execute("SELECT env FROM workspaces_workspace")
        assert "plain-to-see" not in cursor.fetchone()[0]


@pytest.mark.parametrize(
    ("image", "code"),
    [
        ("registry.test/missing", "image_not_found"),
        ("registry.test/unreachable", "image_unreachable"),
        ("registry.test/wrong-platform", "image_wrong_platform"),
    ],
)
def test_a_failed_creation_stays_visible_and_can_be_retried(
    api: Caller, vmhost: FakeHost, image: str, code: str
) -> None:
    answer = api.post("/workspace", {"image": image, "slug": "broken"})
    assert (answer.status_code, answer.json()["code"]) == (500, "CREATE_FAILED")
    assert answer.json()["details"]["id"]
    workspace = api.get("/workspace/broken").json()["workspace"]
    assert (workspace["info"]["status"], workspace["provisioning"]["state"]) == ("failed", "failed")
    assert workspace["provisioning"]["error"]["code"] == code
    assert workspace["provisioning"]["error"]["message"]
    vmhost.images._fail = lambda name: None
    retried = api.post("/workspace/broken/provisioning/retry")
    assert retried.status_code == 202
    vmhost.settle()
    workspace = api.get("/workspace/broken").json()["workspace"]
    assert (workspace["info"]["status"], workspace["provisioning"]["attempts"]) == ("running", 2)
    assert workspace["provisioning"]["error"] is None


def test_retry_of_what_has_not_failed_is_invalid_state(api: Caller, vmhost: FakeHost) -> None:
    api.post("/workspace", {"slug": "fine"})
    answer = api.post("/workspace/fine/provisioning/retry")
    assert (answer.status_code, answer.json()["code"]) == (409, "invalid_state")
    assert answer.json()["details"] == {"status": "running"}


def test_a_failed_creation_leaves_no_machine(api: Caller, vmhost: FakeHost) -> None:
    from vmbackend.errors import CapacityExceeded

    vmhost.driver.fail_next("start", CapacityExceeded("The host has no memory."))
    assert api.post("/workspace", {}).status_code == 500
    assert vmhost.driver.inventory().ids() == frozenset()


def test_a_hundred_creates_with_one_key_make_one_machine(api: Caller, vmhost: FakeHost) -> None:
    def one(number: int):
        try:
            return api.post("/workspace", {"name": "once"}, Idempotency_Key="the-key")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(100)))
    vmhost.settle()
    assert {answer.status_code for answer in answers} <= {200, 201, 202}
    assert len({a.json()["workspace"]["id"] for a in answers}) == 1
    assert Workspace.objects.count() == Operation.objects.count() == len(vmhost.driver.inventory().domains) == 1


def test_a_replay_is_marked_and_another_body_conflicts(api: Caller, vmhost: FakeHost) -> None:
    first = api.post("/workspace", {"name": "one", "idempotency_key": "k"})
    again = api.post("/workspace", {"name": "one", "wait_ready": False}, Idempotency_Key="k")
    assert (again.status_code, again["Idempotent-Replay"]) == (200, "true")
    assert again.json()["workspace"]["id"] == first.json()["workspace"]["id"]
    other = api.post("/workspace", {"name": "two", "idempotency_key": "k"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")


def test_keys_belong_to_the_account(api: Caller, stranger: Caller, vmhost: FakeHost) -> None:
    mine = api.post("/workspace", {"idempotency_key": "k"}).json()["workspace"]["id"]
    theirs = stranger.post("/workspace", {"idempotency_key": "k"})
    assert theirs.status_code == 201
    assert theirs.json()["workspace"]["id"] != mine


def test_a_key_used_outside_of_a_credentials_namespace_shows_nothing(
    api: Caller, scoped: Callable[..., Caller]
) -> None:
    """Not even how the creation ends, for which a request that repeats it waits."""
    make_host()
    assert api.post("/workspace", {"idempotency_key": "k", "wait_ready": False}).status_code == 202
    team = Namespace.objects.create(account=api.account, name="Team", slug="team")
    bound = scoped(api, Scope.NAMESPACE, namespace_id=team.pk, namespace_slug=team.slug)
    with patch.object(views, "wait_for_create") as wait:
        answer = bound.post("/workspace", {"idempotency_key": "k"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    wait.assert_not_called()
    assert Workspace.objects.count() == 1


def test_a_taken_slug_made_from_the_name_gets_a_suffix(api: Caller, vmhost: FakeHost) -> None:
    slugs = [api.post("/workspace", {"name": "same name"}).json()["workspace"]["slug"] for _ in range(2)]
    assert slugs[0] == "same-name"
    assert re.fullmatch(r"same-name-[a-z2-7]{6}", slugs[1])
    answer = api.post("/workspace", {"slug": "same-name"})
    assert (answer.status_code, answer.json()["code"]) == (409, "slug_taken")
