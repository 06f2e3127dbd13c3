"""Creating pages and deploying to them: what is served, what is refused, what is charged."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from credits.ledger import quota_set
from credits.models import Entry, Service
from namespaces.models import Namespace
from pages.models import Page, PageDeploy, PageEvent
from pages.releases.store import PageStore
from pages.states import DeployState
from tests.callers import Caller
from tests.pages.conftest import Site
from tests.pages.limits import limit_settings
from tests.pages.stores import left_files
from tests.world import assert_error
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)
Served = Callable[[str], str | None]


def test_a_created_page_is_served_when_the_response_comes(site: Site, served: Served) -> None:
    made = site.create()
    assert made.status_code == 201, made.content
    body = made.json()
    assert (body["skipped"], body["skipped_count"]) == ([], 0)
    page = body["page"]
    assert (page["name"], page["slug"], page["release"], page["status"]) == ("My site", "my-site", 1, "active")
    assert (page["source_workspace_id"], page["exported_path"]) == (site.workspace_id, "/site")
    assert page["deployment"] == {"state": "deployed", "error": None}
    assert served("my-site") == "one"
    assert [event.action for event in PageEvent.objects.order_by("pk")] == ["created", "deployed"]


def test_a_deploy_replaces_the_files_and_keeps_the_former_release(site: Site, served: Served) -> None:
    site.create(slug="abc", name="ABC")
    site.write(index_html="two")
    (site.folder / "run").symlink_to("/etc")
    answer = site.deploy("abc")
    assert answer.status_code == 200, answer.content
    assert answer.json()["page"]["release"] == 2
    assert answer.json()["skipped_count"] == 1
    assert answer.json()["skipped"][0]["path"] == "run"
    assert served("abc") == "two"
    listed = site.api.get("/pages/abc/releases").json()["releases"]
    assert [(row["release"], row["live"], row["files"], row["bytes"]) for row in listed] == [
        (2, True, 1, 3),
        (1, False, 1, 3),
    ]


def test_a_link_to_a_directory_inside_is_published(site: Site, served: Served) -> None:
    folder = site.folder / "1.2"
    folder.mkdir()
    (folder / "a.html").write_text("1.2")
    (site.folder / "latest").symlink_to("1.2")
    (site.folder / "newest").symlink_to("/site/latest/")
    (site.folder / "all").symlink_to(".")
    body = site.create(slug="abc").json()
    assert (served("abc/latest/a.html"), served("abc/newest/a.html"), served("abc/1.2/a.html")) == ("1.2",) * 3
    assert body["skipped"] == [{"path": "all", "reason": "link to itself"}]
    release = site.api.get("/pages/abc/releases").json()["releases"][0]
    assert (release["files"], release["bytes"]) == (4, len("one") + 3 * len("1.2"))


def test_a_rollback_serves_a_kept_release(site: Site, served: Served) -> None:
    site.create(slug="abc")
    site.write(index_html="two")
    site.deploy("abc")
    for number, content in ((1, "one"), (1, "one"), (2, "two")):
        answer = site.api.post("/pages/abc/rollback", {"release": number})
        assert answer.json()["page"]["release"] == number, answer.content
        assert served("abc") == content
    assert_error(site.api.post("/pages/abc/rollback", {"release": 3}), 404, "not_found")
    assert_error(site.api.post("/pages/abc/rollback", {}), 400, "validation_error")
    site.write(index_html="three")
    assert site.deploy("abc").json()["page"]["release"] == 3


def test_after_a_rollback_the_page_names_the_folder_of_the_live_release(site: Site, served: Served) -> None:
    site.create(slug="abc")
    inner = site.folder / "inner"
    inner.mkdir()
    (inner / "index.html").write_text("two")
    assert site.deploy("abc", path="/site/inner").json()["page"]["exported_path"] == "/site/inner"
    for number, path in ((1, "/site"), (2, "/site/inner"), (1, "/site")):
        answer = site.api.post("/pages/abc/rollback", {"release": number}).json()["page"]
        assert (answer["release"], answer["exported_path"]) == (number, path)
        assert site.api.get("/pages/abc").json()["page"]["exported_path"] == path
    # A deploy that names no folder takes that one.
    again = site.deploy("abc").json()["page"]
    assert (again["release"], again["exported_path"], served("abc")) == (3, "/site", "one")


def test_a_new_slug_replaces_the_old_one(site: Site, served: Served) -> None:
    site.create(slug="abc")
    answer = site.api.put("/pages/abc", {"slug": "def", "name": "Other"})
    assert (answer.status_code, answer.json()["page"]["slug"], answer.json()["page"]["name"]) == (200, "def", "Other")
    assert (served("abc"), served("def")) == (None, "one")
    assert site.create(slug="abc").status_code == 201
    assert_error(site.api.put("/pages/abc", {"slug": "def"}), 409, "slug_taken")
    assert_error(site.create(slug="def"), 409, "slug_taken")
    assert site.api.put("/pages/def", {"slug": "def"}).status_code == 200
    assert_error(site.api.put("/pages/def", {"slug": "www"}), 400, "validation_error")
    assert (served("abc"), served("def")) == ("one", "one")


def test_a_page_is_made_below_one_of_several_domains(
    site: Site, store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_settings(monkeypatch, pages_url=("http://{slug}.pages.localhost:8000", "http://{slug}.sites.localhost:8000"))
    made = site.create(slug="abc", domain="Sites.localhost").json()["page"]
    assert (made["domain"], made["url"]) == ("sites.localhost", "http://abc.sites.localhost:8000")
    assert site.create(slug="other").json()["page"]["domain"] == "pages.localhost"
    names = {str(path.relative_to(store.root / "by-slug")) for path in (store.root / "by-slug").glob("*/*")}
    assert names == {"sites.localhost/abc", "pages.localhost/other"}
    assert_error(site.create(slug="abc"), 409, "slug_taken")
    assert_error(site.create(slug="def", domain="example.org"), 400, "validation_error")


def test_a_disabled_page_is_not_served_until_it_is_enabled(site: Site, served: Served) -> None:
    site.create(slug="abc")
    for _ in range(2):
        assert site.api.post("/pages/abc/disable").json()["page"]["status"] == "disabled"
        assert served("abc") is None
    site.write(index_html="two")
    assert site.deploy("abc").json()["page"]["release"] == 2
    assert site.api.put("/pages/abc", {"slug": "def"}).status_code == 200
    assert served("def") is None
    for _ in range(2):
        assert site.api.post("/pages/def/enable").json()["page"]["status"] == "active"
        assert served("def") == "two"


def test_a_deleted_page_leaves_no_files_and_its_slug(site: Site, served: Served, store: PageStore) -> None:
    site.create(slug="abc")
    assert site.api.delete("/pages/abc").json()["message"]
    assert_error(site.api.get("/pages/abc"), 404, "not_found")
    assert served("abc") is None
    assert left_files(store) == []
    assert site.create(slug="abc").status_code == 201


def test_a_page_outlives_its_workspace(site: Site, served: Served) -> None:
    site.create(slug="abc")
    assert site.api.delete(f"/workspace/{site.workspace_id}").status_code == 200
    assert served("abc") == "one"
    assert_error(site.deploy("abc"), 404, "not_found")
    assert site.api.get("/pages/abc").json()["page"]["deployment"]["state"] == "deployed"


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"path": "/nothing"}, 404, "path_not_found"),
        ({"path": "/site/index.html"}, 404, "path_not_found"),
        ({"path": "site"}, 400, "validation_error"),
        ({"path": "/empty"}, 400, "validation_error"),
        ({"workspace_id": "ws_never"}, 404, "not_found"),
        ({"slug": "a--b"}, 400, "validation_error"),
        ({"domain": "example.org"}, 400, "validation_error"),
        ({"name": "x" * 101}, 400, "validation_error"),
    ],
)
def test_a_refused_creation_leaves_nothing(
    site: Site, store: PageStore, fields: dict[str, Any], status: int, code: str
) -> None:
    (site.folder.parent / "empty").mkdir()
    assert_error(site.create(**fields), status, code)
    assert not Page.objects.exists()
    assert left_files(store) == []
    assert not Entry.objects.exists()


def test_a_workspace_that_does_not_run_is_refused(site: Site) -> None:
    site.create(slug="abc")
    site.api.post(f"/workspace/{site.workspace_id}/stop")
    assert_error(site.create(), 409, "vm_not_running")
    assert_error(site.deploy("abc"), 409, "vm_not_running")
    assert PageDeploy.objects.count() == 1


def test_a_failed_deploy_leaves_the_live_release(site: Site, served: Served) -> None:
    site.create(slug="abc")
    assert_error(site.deploy("abc", path="/nothing"), 404, "path_not_found")
    page = site.api.get("/pages/abc").json()["page"]
    assert (page["release"], page["exported_path"], page["deployment"]["state"]) == (1, "/site", "failed")
    assert page["deployment"]["error"]["code"] == "path_not_found"
    assert served("abc") == "one"
    assert site.deploy("abc").json()["page"]["deployment"] == {"state": "deployed", "error": None}


def test_the_workspace_is_read_in_both_spellings(site: Site) -> None:
    body = {"workspaceId": site.workspace_id, "path": "/site", "slug": "abc"}
    assert site.api.post("/pages", body).status_code == 201
    assert site.deploy("abc", workspaceId=site.workspace_id).status_code == 200
    refused = site.deploy("abc", workspaceId=5)
    assert (refused.status_code, list(refused.json()["details"])) == (400, ["workspaceId"])
    assert_error(site.deploy("abc", workspaceId="ws_missing"), 404, "not_found")


def test_a_deploy_is_charged_once_and_meets_the_hard_block(site: Site) -> None:
    namespace = Namespace.objects.get()
    site.create(slug="abc")
    entry = Entry.objects.select_related("balance").get()
    assert (entry.balance.service, entry.amount) == (Service.DEPLOYMENT, Decimal("0.1"))
    quota = {"namespace": namespace, "service": Service.DEPLOYMENT, "action": "block", "thresholds": []}
    quota_set(**quota, limit=Decimal("0.05"), overdraft=Decimal(1))
    assert "deployment" in site.deploy("abc")["X-Credit-Warning"]
    quota_set(**quota, limit=Decimal("0.05"), overdraft=Decimal(0))
    assert_error(site.deploy("abc"), 402, "quota_exceeded")
    assert_error(site.create(), 402, "quota_exceeded")
    assert Entry.objects.count() == 2


def test_one_deploy_at_a_time(vmhost: Any, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.create(slug="abc")
    limit_settings(monkeypatch, deploy_wait_seconds=0)
    vmhost.hold_tasks()
    first = site.deploy("abc")
    assert (first.status_code, first.json()["page"]["deployment"]["state"]) == (202, "deploying")
    assert first.json()["page"]["release"] == 1
    assert_error(site.deploy("abc"), 409, "operation_in_progress")
    assert_error(site.api.post("/pages/abc/rollback", {"release": 1}), 409, "operation_in_progress")
    vmhost.release_tasks()
    vmhost.settle()
    assert site.api.get("/pages/abc").json()["page"]["release"] == 2


def test_a_creation_that_fails_after_the_wait_says_why(
    vmhost: Any, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_settings(monkeypatch, deploy_wait_seconds=0)
    vmhost.hold_tasks()
    assert site.create(slug="abc", path="/nothing").status_code == 202
    vmhost.release_tasks()
    vmhost.settle()
    page = site.api.get("/pages/abc").json()["page"]
    assert (page["release"], page["deployment"]["error"]["code"]) == (None, "path_not_found")
    limit_settings(monkeypatch, deploy_wait_seconds=60)
    assert site.deploy("abc", path="/site").json()["page"]["release"] == 1


def test_a_deleted_page_ends_its_deploy(
    vmhost: Any, site: Site, store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_settings(monkeypatch, deploy_wait_seconds=0)
    vmhost.hold_tasks()
    site.create(slug="abc")
    assert site.api.delete("/pages/abc").status_code == 200
    vmhost.release_tasks()
    vmhost.settle()
    assert not PageDeploy.objects.exists()
    assert left_files(store) == []


def test_a_namespaces_pages_are_those_of_its_workspaces(site: Site, api: Caller) -> None:
    other = Namespace.objects.create(account=api.account, name="Other", slug="other")
    Workspace.objects.update(namespace=other)
    assert site.create().json()["page"]["namespace"] == "other"
    other.refresh_from_db()
    assert other.last_active_at is not None
    Namespace.objects.filter(pk=other.pk).update(suspended_by_hand=True)
    assert_error(site.create(), 403, "namespace_suspended")
    assert PageDeploy.objects.filter(state=DeployState.SUCCEEDED).count() == 1
