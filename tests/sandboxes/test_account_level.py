"""`/sandbox`: read, list, power, delete, metrics (specification, Sandbox service; wire contract, section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from accounts.models import Plan
from accounts.scopes import Scope
from namespaces.models import Namespace
from sandboxes.models import Sandbox, SandboxEvent
from sandboxes.states import OF_WORKSPACE
from tests.callers import Caller, edge_header
from tests.fakehost import FakeHost
from tests.sandboxes.conftest import Holder
from tests.sandboxes.rows import make_sandbox
from tests.workspaces.rows import make_workspace
from tests.world import assert_error
from vmbackend.driver import MachineState
from workspaces.models import Operation
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_sandbox_counts_as_a_workspace(api: Caller, vmhost: FakeHost) -> None:
    Plan.objects.filter(pk=api.account.plan_id).update(max_workspaces=1)
    api.post("/sandbox", {"name": "one", "config": {"memory_mb": 128}})
    quota = api.get("/workspace/quota").json()
    assert (quota["currentSandboxes"], quota["pool_usage"]["memory_mb"], quota["canCreate"]) == (1, 128, False)
    refused = api.post("/sandbox", {"name": "one"})
    assert_error(refused, 402, "SANDBOX_LIMIT_REACHED")
    assert refused.json()["details"] == {"current": 1, "max": 1}
    assert Sandbox.objects.count() == 1


def test_workspace_routes_list_no_sandbox_and_take_one_by_its_machine(api: Caller, holder: Holder) -> None:
    plain = make_workspace(api.account)
    listed = api.get("/workspace").json()
    assert ([row["id"] for row in listed["workspaces"]], listed["total"]) == ([plain.pk], 1)
    assert api.get("/workspace?mode=permanent").json()["total"] == 0
    machine = holder.workspace
    assert api.get(f"/workspace/{machine.pk}").json()["workspace"]["name"] == "The box"
    assert api.put(f"/workspace/{machine.pk}/lifecycle/idle", {"suspend_after": "10m"}).status_code == 200
    sandboxes = api.get("/sandbox").json()
    assert ([row["id"] for row in sandboxes["sandboxes"]], sandboxes["total"]) == ([holder.id], 1)
    assert_error(api.get(f"/sandbox/{plain.pk.replace('ws_', 'sbx_')}"), 404, "not_found")
    assert_error(api.get(f"/sandbox/{plain.pk}"), 404, "not_found")


def test_a_sandbox_is_stopped_started_and_restarted(api: Caller, holder: Holder) -> None:
    path = f"/sandbox/{holder.id}"
    for _ in range(2):
        stopped = api.post(f"{path}/stop")
        assert (stopped.status_code, stopped.json()["sandbox"]["status"]) == (200, "stopped")
    assert_error(api.post(f"{path}/restart"), 409, "invalid_state")
    for _ in range(2):
        started = api.post(f"{path}/start")
        assert (started.status_code, started.json()["sandbox"]["status"]) == (200, "active")
    assert api.post(f"{path}/restart").json()["sandbox"]["status"] == "active"
    actions = SandboxEvent.objects.order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["created", "stopped", "started", "restarted"]


def test_an_operation_that_goes_on_is_202(api: Caller, holder: Holder, vmhost: FakeHost, settings: Any) -> None:
    settings.ENV = settings.ENV.model_copy(update={"power_seconds": 0})
    vmhost.hold_tasks()
    answer = api.post(f"/sandbox/{holder.id}/stop")
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    vmhost.release_tasks()


def test_a_deleted_sandbox_is_gone_with_its_machine(api: Caller, holder: Holder, vmhost: FakeHost) -> None:
    machine = holder.workspace.pk
    answer = api.delete(f"/sandbox/{holder.id}")
    assert (answer.status_code, answer.json()["success"]) == (200, True)
    assert_error(api.get(f"/sandbox/{holder.id}"), 404, "not_found")
    assert_error(api.delete(f"/sandbox/{holder.id}"), 404, "not_found")
    assert vmhost.driver.state(machine) is MachineState.ABSENT
    assert not Sandbox.objects.exists()
    assert api.get("/workspace/quota").json()["currentSandboxes"] == 0
    assert SandboxEvent.objects.filter(sandbox_id=holder.id, action="deleted").count() == 1


def test_audit_entries_have_the_address_and_the_user_agent(api: Caller, vmhost: FakeHost) -> None:
    vmhost.hold_tasks()
    api.send(
        "POST", "/sandbox", {"name": "one", "wait_ready": False}, User_Agent="curl/8", X_Edge=edge_header("203.0.113.9")
    )
    event = SandboxEvent.objects.get()
    assert (event.action, event.ip_address, event.user_agent) == ("created", "203.0.113.9", "curl/8")


def test_a_namespace_that_is_deleted_takes_its_sandboxes_along(api: Caller, vmhost: FakeHost) -> None:
    Namespace.objects.create(account=api.account, name="Team", slug="team")
    made = api.post("/sandbox", {"name": "one", "namespace": "team"}).json()["sandbox"]
    from workspaces import namespace_members

    api.delete("/namespaces/" + Namespace.objects.get(slug="team").pk, {"deleteWorkspaces": True})
    namespace_members.delete_members(Namespace.objects.get(slug="team"))
    vmhost.settle()
    assert_error(api.get(f"/sandbox/{made['id']}"), 404, "not_found")
    assert not Sandbox.objects.exists()


def test_metrics_are_percent_and_seconds(api: Caller, holder: Holder) -> None:
    metrics = api.get(f"/sandbox/{holder.id}/metrics").json()["metrics"]
    assert set(metrics) == {"cpu_usage", "memory_usage", "disk_usage", "uptime"}
    assert all(isinstance(value, int | float) and value >= 0 for value in metrics.values())
    assert all(metrics[name] <= 100 for name in ("cpu_usage", "memory_usage", "disk_usage"))
    api.post(f"/sandbox/{holder.id}/stop")
    stopped = api.get(f"/sandbox/{holder.id}/metrics").json()["metrics"]
    assert stopped == {"cpu_usage": 0, "memory_usage": 0, "disk_usage": 0, "uptime": 0}


def test_every_status_of_a_machine_has_one_of_a_sandbox_and_filters_by_it(api: Caller) -> None:
    assert set(OF_WORKSPACE) == set(Status)
    ids: dict[str, set[str]] = {}
    for status in Status:
        made, _ = make_sandbox(api.account, status=status)
        ids.setdefault(OF_WORKSPACE[status].value, set()).add(made.pk)
    assert set(ids) == {"active", "stopped", "suspended", "creating", "failed"}
    for shown, expected in ids.items():
        body = api.get(f"/sandbox?status={shown}&limit=100").json()
        assert {row["id"] for row in body["sandboxes"]} == expected
        assert {row["status"] for row in body["sandboxes"]} == {shown}
        assert body["total"] == len(expected)
    assert_error(api.get("/sandbox?status=running"), 400, "validation_error")


def test_a_list_is_paged_newest_first_with_the_same_queries_for_any_length(
    api: Caller, django_assert_num_queries: Any
) -> None:
    made = [make_sandbox(api.account)[0].pk for _ in range(3)]
    api.get("/sandbox")
    with django_assert_num_queries(3):  # the credential, the count, the rows
        body = api.get("/sandbox?limit=2").json()
    assert [row["id"] for row in body["sandboxes"]] == made[:0:-1]
    assert (body["total"], body["page"], body["limit"]) == (3, 1, 2)
    made += [make_sandbox(api.account)[0].pk for _ in range(10)]
    with django_assert_num_queries(3):
        assert len(api.get("/sandbox?limit=100").json()["sandboxes"]) == 13
    assert "token" not in body["sandboxes"][0]


def test_credentials_reach_the_sandboxes_of_their_scope(api: Caller, scoped: Callable[..., Caller]) -> None:
    team = Namespace.objects.create(account=api.account, name="Team", slug="team")
    outside, _ = make_sandbox(api.account)
    inside, _ = make_sandbox(api.account, namespace=team)
    of_team = scoped(api, Scope.NAMESPACE, namespace_id=team.pk, namespace_slug="team")
    pinned = scoped(api, Scope.WORKSPACE, namespace_id=team.pk, workspace_id=inside.workspace_id)
    for caller in (of_team, pinned):
        for path in ("/sandbox", "/sandbox?namespace=team"):
            assert [row["id"] for row in caller.get(path).json()["sandboxes"]] == [inside.pk]
        assert_error(caller.get("/sandbox?namespace=default"), 403, "forbidden")
        assert caller.get(f"/sandbox/{inside.pk}").status_code == 200
        assert caller.post(f"/sandbox/{inside.pk}/regenerate-token").status_code == 200
        assert_error(caller.post(f"/sandbox/{outside.pk}/regenerate-token"), 404, "not_found")
    assert_error(of_team.post("/sandbox", {"name": "one", "namespace": "default"}), 403, "forbidden")
    assert_error(pinned.post("/sandbox", {"name": "one"}), 403, "forbidden")


def test_a_sandbox_whose_creation_was_not_begun_by_any_host_is_deleted(api: Caller, vmhost: FakeHost) -> None:
    vmhost.hold_tasks()
    made = api.post("/sandbox", {"name": "one", "wait_ready": False}).json()["sandbox"]
    answer = api.delete(f"/sandbox/{made['id']}")
    assert (answer.status_code, answer.json()["accepted"]) == (202, True)
    vmhost.release_tasks()
    vmhost.settle()
    for operation in Operation.objects.filter(state="queued"):
        vmhost._submit("workspaces.tasks.run_operation", (operation.pk,))
    vmhost.settle()
    assert not Sandbox.objects.exists()
