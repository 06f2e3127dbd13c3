"""Reading workspaces: one, its details, the list, the quota (specification, Workspace object, Details object)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from accounts.models import Credential
from accounts.scopes import Scope
from namespaces.models import Namespace
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_host, make_workspace
from tests.world import assert_error
from workspaces.states import HOLDS_PROCESS, Provisioning, Status

OBJECT = {
    "id", "name", "slug", "namespace", "mode", "image", "ip", "uptime", "start_time", "info", "access", "network",
    "public_ports", "resources", "created_at", "updated_at", "image_logo", "image_color", "image_desktop",
    "image_capabilities", "ready", "provisioning", "status",
}  # fmt: skip
EXTRAS = {"token", "stats", "ssh", "api_access", "lifecycle", "config"}


@pytest.mark.django_db
def test_a_workspace_is_read_by_id_and_by_slug(api: Caller) -> None:
    row = make_workspace(api.account, slug="by-slug")
    by_id, by_slug = api.get(f"/workspace/{row.pk}"), api.get("/workspace/by-slug")
    assert by_id.status_code == by_slug.status_code == 200
    shown = by_id.json()["workspace"]
    assert by_slug.json()["workspace"]["id"] == shown["id"] == row.pk
    assert set(shown) >= OBJECT
    assert set(shown["info"]) >= {"status", "is_running", "user_requested_stop"}
    assert set(shown["network"]) == {
        "allow_internet", "ingress_ports", "egress_ports", "egress", "public_access", "ingress",
    }  # fmt: skip
    assert shown["access"] == {"ssh_enabled": False}
    assert shown["resources"] == {"cpus": 0.1, "memory_mb": 128, "disk_size_mb": 64}
    assert shown["status"] == shown["info"]["status"]
    for moment in ("created_at", "updated_at", "start_time"):
        assert shown[moment].endswith("Z")
        assert parse_datetime(shown[moment]) is not None


@pytest.mark.django_db
def test_the_provisioning_object_has_its_documented_fields(api: Caller) -> None:
    row = make_workspace(api.account)
    shown = api.get(f"/workspace/{row.pk}").json()["workspace"]["provisioning"]
    assert set(shown) == {
        "state", "phase", "progress", "message", "error", "attempts", "created_at", "updated_at", "completed_at",
    }  # fmt: skip
    assert (shown["state"], shown["error"]) == ("ready", None)


@pytest.mark.django_db
def test_details_stand_inside_the_workspace_and_beside_it(api: Caller) -> None:
    row = make_workspace(api.account, env={"KEY": "hidden-value"})
    body = api.get(f"/workspace/{row.pk}/details").json()
    assert body["success"] is True
    assert set(body["workspace"]) >= OBJECT | EXTRAS
    assert {name: body[name] for name in EXTRAS} == {name: body["workspace"][name] for name in EXTRAS}
    assert set(body["ssh"]) >= {"ssh_enabled", "ssh_id"}
    assert set(body["api_access"]) == {"terminal", "preview", "runtime"}
    assert set(body["lifecycle"]) >= {"mode", "restart_policy", "uptime"}
    assert "hidden-value" not in str(body)


@pytest.mark.django_db
def test_the_details_token_reaches_this_workspace_alone(api: Caller) -> None:
    row, beside = make_workspace(api.account), make_workspace(api.account)
    token = api.get(f"/workspace/{row.pk}/details").json()["token"]
    bearer = {"Authorization": f"Bearer {token}"}
    assert api.client.get(f"/workspace/{row.pk}", headers=bearer).status_code == 200
    assert api.client.get(f"/workspace/{beside.pk}", headers=bearer).status_code == 404
    assert api.client.get("/workspace/quota", headers=bearer).status_code == 403
    listed = api.client.get("/workspace", headers=bearer).json()
    assert [item["id"] for item in listed["workspaces"]] == [row.pk]


@pytest.mark.django_db
def test_a_token_does_not_renew_itself_through_the_details(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    row = make_workspace(api.account)
    minted = api.post("/tokens", {"scope": "account", "ttl": 60}).json()["token"]
    bearer = {"Authorization": f"Bearer {minted}"}
    from_token = api.client.get(f"/workspace/{row.pk}/details", headers=bearer).json()["token"]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 61)
    again = api.client.get(f"/workspace/{row.pk}", headers={"Authorization": f"Bearer {from_token}"})
    assert again.status_code == 401


@pytest.mark.django_db
@pytest.mark.parametrize("status", list(Status))
def test_what_a_status_says_of_the_process(api: Caller, status: Status) -> None:
    began = timezone.now() - timedelta(seconds=100)
    row = make_workspace(api.account, status=status, started_at=began)
    shown = api.get(f"/workspace/{row.pk}").json()["workspace"]
    assert shown["info"]["status"] == status
    assert shown["ready"] is (status == Status.RUNNING)
    assert shown["info"]["is_running"] is (status in HOLDS_PROCESS)
    if status in HOLDS_PROCESS:
        assert 100 <= shown["uptime"] <= 102
        assert shown["start_time"] is not None
    else:
        assert (shown["uptime"], shown["start_time"]) == (0, None)


@pytest.mark.django_db
def test_the_list_is_paged_newest_first(api: Caller, stranger: Caller) -> None:
    rows = [make_workspace(api.account) for _ in range(25)]
    make_workspace(stranger.account)
    first = api.get("/workspace").json()
    assert (first["success"], first["total"], first["page"], first["limit"]) == (True, 25, 1, 20)
    second = api.get("/workspace?page=2").json()
    shown = [item["id"] for item in first["workspaces"] + second["workspaces"]]
    assert shown == [row.pk for row in reversed(rows)]
    assert set(first["workspaces"][0]) >= OBJECT
    beyond = api.get("/workspace?page=99&limit=100").json()
    assert (beyond["workspaces"], beyond["total"], beyond["limit"]) == ([], 25, 100)
    assert len(api.get("/workspace?limit=1&page=25").json()["workspaces"]) == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    "query",
    [
        "page=0", "page=-1", "page=x", "page=1.5",  "page=99999999999999999999", "limit=0", "limit=101",
        "limit=all", "mode=eternal", "status=happy", "search=%00",
    ],
)  # fmt: skip
def test_a_query_out_of_range_is_400_and_named(api: Caller, query: str) -> None:
    answer = api.get(f"/workspace?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert list(answer.json()["details"]) == [query.split("=", maxsplit=1)[0]]


@pytest.mark.django_db
def test_the_list_filters(api: Caller) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    one = make_workspace(api.account, name="Blue whale", mode="permanent")
    two = make_workspace(api.account, namespace=other, slug="red-fish", status=Status.STOPPED)
    three = make_workspace(api.account, image="registry.test/team/green_tool:2")

    def found(query: str) -> set[str]:
        body = api.get(f"/workspace?{query}").json()
        assert body["total"] == len(body["workspaces"])
        return {item["id"] for item in body["workspaces"]}

    assert found("mode=permanent") == {one.pk}
    assert found("mode=temporary") == {two.pk, three.pk}
    assert found("status=stopped") == {two.pk}
    assert found("namespace=other") == {two.pk}
    assert found("namespace=missing") == set()
    assert found("search=WHALE") == {one.pk}
    assert found("search=red-f") == {two.pk}
    assert found("search=green_tool") == {three.pk}
    assert found(f"search={three.pk}") == {three.pk}
    assert found("search=%25") == set()
    assert found("search=green.tool") == set()
    assert found("mode=temporary&namespace=other&status=running") == set()
    assert found("unknown=1&mode=permanent") == {one.pk}


@pytest.mark.django_db
def test_the_list_is_filtered_to_the_scope(api: Caller, scoped: Callable[..., Caller]) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    inside, _ = make_workspace(api.account, namespace=other), make_workspace(api.account)
    for caller in (
        scoped(api, Scope.NAMESPACE, namespace_id=other.pk, namespace_slug="other"),
        scoped(api, Scope.WORKSPACE, namespace_id=other.pk, workspace_id=inside.pk),
    ):
        body = caller.get("/workspace").json()
        assert ([item["id"] for item in body["workspaces"]], body["total"]) == ([inside.pk], 1)
        assert caller.get("/workspace?namespace=other").json()["total"] == 1
        for named in ("default", "missing"):
            assert_error(caller.get(f"/workspace?namespace={named}"), 403, "forbidden")


@pytest.mark.django_db
def test_the_number_of_queries_does_not_grow_with_the_rows(api: Caller, stranger: Caller) -> None:
    host = make_host()
    row = make_workspace(api.account, host=host, ip="10.200.0.2")
    Credential.objects.update(last_used_at=timezone.now())
    paths = ["/workspace?limit=100", f"/workspace/{row.pk}", f"/workspace/{row.pk}/details", "/workspace/quota"]

    def counts() -> list[int]:
        made = []
        for path in paths:
            with CaptureQueriesContext(
                connection,
            ) as seen:
                assert api.get(path).status_code == 200
            made.append(len(seen))
        return made

    before = counts()
    for number in range(30):
        make_workspace(api.account, host=host, ip=f"10.200.1.{number}")
        make_workspace(stranger.account, host=host, ip=f"10.200.2.{number}")
    assert counts() == before
    assert api.get("/workspace?limit=100").json()["total"] == 31
    assert max(before) <= 4


@pytest.mark.django_db(transaction=True)
def test_an_operation_in_progress_is_readable(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/workspace", {"slug": "moving"}).json()["workspace"]["id"]
    from workspaces.models import Workspace
    from workspaces.power import workspace_start, workspace_stop

    def shown() -> dict:
        one = api.get("/workspace/moving").json()["workspace"]
        listed = api.get("/workspace").json()["workspaces"][0]
        assert listed["info"] == one["info"]
        return one

    vmhost.hold_tasks()
    workspace_stop(workspace=Workspace.objects.get(pk=made), actor="test")
    during = shown()
    assert (during["info"]["status"], during["ready"], during["info"]["is_running"]) == ("stopping", False, True)
    assert during["provisioning"]["state"] == "ready"
    vmhost.release_tasks()
    vmhost.settle()
    assert shown()["info"] == {
        "status": "stopped", "is_running": False, "user_requested_stop": True, "health": None,
        "unresponsive_since": None, "error": None,
    }  # fmt: skip
    vmhost.hold_tasks()
    workspace_start(workspace=Workspace.objects.get(pk=made), actor="test")
    during = shown()
    assert (during["info"]["status"], during["ready"], during["info"]["is_running"]) == ("starting", False, False)
    vmhost.release_tasks()
    vmhost.settle()
    after = shown()
    assert (after["info"]["status"], after["ready"], after["info"]["user_requested_stop"]) == ("running", True, False)


@pytest.mark.django_db(transaction=True)
def test_ready_and_provisioned_are_one_commit(api: Caller, vmhost: FakeHost) -> None:
    """A reader that polls through a creation never sees one without the other."""
    vmhost.driver.delays = {"prepare": 0.05, "start": 0.05, "boot": 0.1}
    path = f"/workspace/{api.post('/workspace', {'wait_ready': False}).json()['id']}"
    seen: list[tuple[str, str, bool]] = []
    until = timezone.now() + timedelta(seconds=10)
    while timezone.now() < until:
        shown = api.get(path).json()["workspace"]
        seen.append((shown["info"]["status"], shown["provisioning"]["state"], shown["ready"]))
        if shown["ready"]:
            break
    assert seen[-1] == ("running", Provisioning.READY, True)
    assert {ready for _, state, ready in seen if state != Provisioning.READY} <= {False}
    assert {ready for _, state, ready in seen if state == Provisioning.READY} == {True}
    assert {status for status, _, _ in seen} <= {"queued", "creating", "running"}


@pytest.mark.django_db
def test_the_quota_object(new_account: Callable[..., Caller]) -> None:
    api = new_account(plan="tiny")
    make_workspace(api.account, cpu_millis=500, memory_mb=768, disk_size_mb=100)
    make_workspace(api.account, status=Status.STOPPED, cpu_millis=250, memory_mb=128, disk_size_mb=64)
    body = api.get("/workspace/quota").json()
    assert body["success"] is True
    assert (body["plan"], body["planLabel"]) == ("tiny", "Tiny")
    assert body["limits"] == {"cpus": 2, "memory_mb": 1024, "disk_size_mb": 2048}
    assert body["pool"] == {"cpus": 2, "memory_mb": 1536, "disk_size_mb": 4096}
    assert body["pool_usage"] == {"count": 2, "cpus": 0.75, "memory_mb": 896, "disk_size_mb": 164}
    assert body["running_pool"] == {"cpus": 1, "memory_mb": 1024, "disk_size_mb": 2048}
    assert body["running_pool_usage"] == {"count": 1, "cpus": 0.5, "memory_mb": 768, "disk_size_mb": 100}
    assert (body["maxSandboxes"], body["currentSandboxes"]) == (2, 2)
    assert (body["canCreate"], body["reason"]) == (False, "SANDBOX_LIMIT_REACHED")


@pytest.mark.django_db
def test_an_empty_account_can_create(api: Caller) -> None:
    body = api.get("/workspace/quota").json()
    assert (body["canCreate"], body["reason"], body["currentSandboxes"]) == (True, None, 0)
    assert body["pool_usage"] == {"count": 0, "cpus": 0, "memory_mb": 0, "disk_size_mb": 0}
