"""`PUT /workspace/:id` (specification, Workspaces)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.callers import Caller
from tests.workspaces.rows import make_workspace
from workspaces.models import Activity, Workspace

pytestmark = pytest.mark.django_db


def test_names_logo_and_slug_are_changed(api: Caller) -> None:
    row = make_workspace(api.account)
    change = {"name": "New name", "slug": "new-slug", "logo": "https://x.test/l.png", "unknown": 1}
    answer = api.put(f"/workspace/{row.pk}", change)
    assert answer.status_code == 200
    shown = answer.json()["workspace"]
    assert (shown["name"], shown["slug"], shown["logo"]) == ("New name", "new-slug", "https://x.test/l.png")
    assert api.get("/workspace/new-slug").json()["workspace"] == shown
    assert api.get(f"/workspace/{row.slug}").status_code == 404
    assert Activity.objects.get(workspace_id=row.pk).action == "updated"


def test_null_removes_slug_and_logo(api: Caller) -> None:
    row = make_workspace(api.account, logo="https://x.test/l.png")
    shown = api.put(f"/workspace/{row.slug}", {"slug": None, "logo": None}).json()["workspace"]
    assert (shown["slug"], shown["logo"]) == (None, None)
    other = make_workspace(api.account)
    assert api.put(f"/workspace/{other.pk}", {"slug": None}).status_code == 200  # any number may be without


def test_what_is_not_named_stays(api: Caller) -> None:
    row = make_workspace(api.account, remove_on_exit=True, env={"A": "1"}, max_restarts=3)
    assert api.put(f"/workspace/{row.pk}", {}).status_code == 200
    assert api.put(f"/workspace/{row.pk}", {"config": {"restart_policy": "always"}}).status_code == 200
    row.refresh_from_db()
    assert (row.remove_on_exit, row.env, row.max_restarts, row.restart_policy) == (True, {"A": "1"}, 3, "always")


def test_settings_of_the_machine_are_stored(api: Caller) -> None:
    row = make_workspace(api.account)
    config = {"env": ["A=b"], "cmd": "sleep 1", "remove_on_exit": True, "ssh_access": True, "keep_logs": False}
    shown = api.put(f"/workspace/{row.pk}", {"config": config}).json()["workspace"]
    assert shown["access"]["ssh_enabled"] is True
    row.refresh_from_db()
    assert (row.env, row.cmd, row.remove_on_exit, row.keep_logs) == (
        {"A": "b"},
        ["/bin/sh", "-c", "sleep 1"],
        True,
        False,
    )
    assert api.put(f"/workspace/{row.pk}", {"config": {"cmd": None, "env": []}}).status_code == 200
    row.refresh_from_db()
    assert (row.cmd, row.env) == (None, {})


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"name": "x" * 256}, "INVALID_NAME_LENGTH", "name"),
        ({"name": 5}, "validation_error", "name"),
        ({"name": None}, "validation_error", "name"),
        ({"name": ""}, "validation_error", "name"),
        ({"slug": "ab"}, "validation_error", "slug"),
        ({"slug": "Upper"}, "validation_error", "slug"),
        ({"slug": "under_score"}, "validation_error", "slug"),
        ({"slug": "x" * 129}, "validation_error", "slug"),
        ({"slug": "quota"}, "validation_error", "slug"),
        ({"slug": "images"}, "validation_error", "slug"),
        ({"slug": 7}, "validation_error", "slug"),
        ({"logo": ["x"]}, "validation_error", "logo"),
        ({"logo": "x" * 2049}, "validation_error", "logo"),
        ({"config": None}, "INVALID_CONFIG", None),
        ({"config": "x"}, "INVALID_CONFIG", None),
        ({"config": {"image": "debian:12"}}, "INVALID_CONFIG", "image"),
        ({"config": {"restart_policy": "maybe"}}, "INVALID_CONFIG", "restart_policy"),
        ({"config": {"max_restarts": -1}}, "INVALID_CONFIG", "max_restarts"),
        ({"config": {"cpus": 2}}, "INVALID_CONFIG", "cpus"),
        ({"config": {"ttl": "1h"}}, "INVALID_CONFIG", "ttl"),
    ],
)
def test_a_wrong_change_is_refused_and_changes_nothing(api: Caller, body: Any, code: str, field: str | None) -> None:
    row = make_workspace(api.account)
    answer = api.put(f"/workspace/{row.pk}", {"logo": "https://x.test/new", **body})
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    if field:
        assert list(answer.json()["details"]) == [field]
    assert Workspace.objects.get().logo is None


def test_a_taken_slug_is_409(api: Caller, stranger: Caller) -> None:
    row, other = make_workspace(api.account), make_workspace(api.account)
    theirs = make_workspace(stranger.account, slug="theirs")
    answer = api.put(f"/workspace/{row.pk}", {"slug": other.slug})
    assert (answer.status_code, answer.json()["code"]) == (409, "slug_taken")
    assert api.put(f"/workspace/{row.pk}", {"slug": row.slug}).status_code == 200
    assert api.put(f"/workspace/{row.pk}", {"slug": theirs.slug}).status_code == 200  # slugs are the account's


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_what_another_request_removed_is_404(api: Caller, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    from workspaces import selectors

    row = make_workspace(api.account)
    found = selectors.get_workspace

    def get_then_lose(*args: Any, **kwargs: Any) -> Workspace:
        workspace = found(*args, **kwargs)
        Workspace.objects.filter(pk=workspace.pk).delete()
        return workspace

    monkeypatch.setattr(selectors, "get_workspace", get_then_lose)
    answer = api.send(method, f"/workspace/{row.pk}", {"name": "late"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_wrong_workloads_change_nothing(api: Caller) -> None:
    row = make_workspace(api.account, workloads=[{"name": "web", "cmd": ["true"]}])
    for wrong in ([{"name": "a/b", "cmd": ["true"]}], [{"name": "web", "cmd": ["true"]}] * 2):
        answer = api.put(f"/workspace/{row.pk}", {"config": {"workloads": wrong}})
        assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_CONFIG")
    row.refresh_from_db()
    assert row.workloads == [{"name": "web", "cmd": ["true"]}]
