"""Creating pages and deploying to them: what is served, what is refused, what is charged."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings
from django.db import DataError

from credits.ledger import quota_set
from credits.models import Entry, Service
from namespaces.models import Namespace
from pages import publication
from pages.models import Page, PageDeploy, PageEvent, PageRelease
from pages.releases.disk_use import BLOCK, names_bytes
from pages.releases.store import PageStore
from pages.states import DeployState
from tests.callers import Caller
from tests.pages.archives import END, entry, pax, record
from tests.pages.conftest import Site
from tests.pages.stores import left_files
from tests.world import assert_error
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)
Served = Callable[[str], str | None]


def limit_settings(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update=limits))


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


@pytest.mark.parametrize(
    ("limit", "name", "path"),
    [
        ("page_max_bytes", "bytes", "index.html"),
        ("page_max_files", "files", "more.html"),
        ("page_file_max_bytes", "file_bytes", "index.html"),
    ],
)
def test_a_limit_of_the_export_is_413_with_its_path(
    site: Site, monkeypatch: pytest.MonkeyPatch, limit: str, name: str, path: str
) -> None:
    site.write(index_html="many", more_html="two")
    limit_settings(monkeypatch, **{limit: 1})
    answer = site.create()
    assert_error(answer, 413, "payload_too_large")
    assert answer.json()["details"] == {"limit": name, "max": 1, "path": path}


def test_what_a_guest_sends_is_checked(site: Site, served: Served) -> None:
    with tarfile.open(site.archive, "w") as archive:
        for name in ("../outside", "/absolute", "index.html"):
            entry = tarfile.TarInfo(name)
            entry.size = 3
            archive.addfile(entry, io.BytesIO(b"abc"))
    answer = site.create(slug="abc")
    assert answer.status_code == 201, answer.content
    assert served("abc") == "abc"
    assert answer.json()["skipped_count"] == 2
    site.archive.write_bytes(site.archive.read_bytes()[:700])
    refused = site.deploy("abc")
    assert_error(refused, 503, "VM_UNAVAILABLE")
    assert PageDeploy.objects.order_by("-pk").first().attempt == 3  # type: ignore[union-attr]
    assert served("abc") == "abc"


@pytest.mark.parametrize("name", [b"a\0b", b"a\x01b", b"\xff\xfe", "\u2028\U0010ffff".encode()])
def test_any_name_can_be_listed(site: Site, served: Served, name: bytes) -> None:
    """Also one that the database has no room for as it is."""
    hidden = pax(record("path", b"." + name)) + entry("x", b"x")
    site.archive.write_bytes(entry("index.html", b"two") + hidden + END)
    answer = site.create(slug="abc")
    assert answer.status_code == 201, answer.content
    assert [left["reason"] for left in answer.json()["skipped"]] == ["dotfile"]
    assert served("abc") == "two"


def test_a_limit_that_is_passed_by_a_name_with_a_nul_is_shown(site: Site) -> None:
    site.archive.write_bytes(pax(record("path", b"a\0" + b"b" * 1100)) + entry("x", b"x") + END)
    refused = site.create(slug="abc")
    assert_error(refused, 413, "payload_too_large")
    assert refused.json()["details"]["path"].startswith("a\\x00bbb")


def test_a_release_whose_row_is_refused_fails_the_deploy_at_once(
    site: Site, served: Served, store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.create(slug="abc")
    site.write(index_html="two")

    def refused(**fields: Any) -> None:
        raise DataError("a value that the database does not take")

    with monkeypatch.context() as patched:
        patched.setattr(PageRelease.objects, "create", refused)
        assert_error(site.deploy("abc"), 503, "VM_UNAVAILABLE")
    assert served("abc") == "one"
    publication.files_reconcile()
    assert store.release_numbers(Page.objects.get().pk) == [1]
    assert site.deploy("abc").status_code == 200
    assert served("abc") == "two"


def test_rules_that_are_links_take_nothing_off_the_bytes_of_a_release(site: Site) -> None:
    for name in ("_headers", "_redirects"):
        (site.folder / name).symlink_to("index.html")
    assert site.create(slug="abc").status_code == 201
    assert [row["bytes"] for row in site.api.get("/pages/abc/releases").json()["releases"]] == [len("one")]


def test_releases_beyond_those_that_are_kept_are_removed(
    site: Site, store: PageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_settings(monkeypatch, page_releases=2)
    site.create(slug="abc")
    for number in range(3):
        site.write(index_html=f"number {number}")
        site.deploy("abc")
    page = Page.objects.get()
    assert list(PageRelease.objects.values_list("number", flat=True)) == [4, 3]
    assert store.release_numbers(page.pk) == [3, 4]
    assert page.kept_bytes == store.page_bytes(page.pk) == 2 * (BLOCK + names_bytes(["index.html"]))
    assert_error(site.api.post("/pages/abc/rollback", {"release": 1}), 404, "not_found")


def test_what_an_account_keeps_has_a_limit(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    of_names = names_bytes(["index.html"])
    limit_settings(monkeypatch, pages_account_max_bytes=BLOCK + 3 * of_names)
    assert site.create(slug="abc").status_code == 201
    # The same contents take nothing more but their names; others are above the limit.
    assert site.deploy("abc").status_code == 200
    site.write(more_html="three")
    refused = site.deploy("abc")
    assert_error(refused, 402, "quota_exceeded")
    assert refused.json()["details"] == {"current": BLOCK + 2 * of_names, "max": BLOCK + 3 * of_names}
    limit_settings(monkeypatch, pages_account_max_bytes=BLOCK + 2 * of_names)
    assert_error(site.create(slug="def"), 402, "quota_exceeded")
    assert Page.objects.count() == 1


@pytest.mark.parametrize("name", ["{}.bin", "{}/index.html"], ids=["files", "folders"])
def test_the_limit_counts_blocks_of_the_disk(site: Site, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Files and folders of nearly no bytes take a block and an inode each."""
    limit_settings(monkeypatch, pages_account_max_bytes=300_000)
    for number in range(100):
        path = site.folder / name.format(number)
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    assert_error(site.create(slug="abc"), 402, "quota_exceeded")


def test_equal_files_take_the_disk_once_as_they_are_counted(site: Site, store: PageStore) -> None:
    for number in range(5):
        (site.folder / f"{number}.bin").write_bytes(b"x" * (2 << 20))
        (site.folder / f"{number}.txt").write_text("text that compresses " * 200)
    assert site.create(slug="abc").status_code == 201
    found = [path.stat() for path in (store.root / "by-id").rglob("public/*")]
    assert len(found) == 11 + 3 * 5
    on_the_disk = sum({stat.st_ino: stat.st_blocks * 512 for stat in found}.values())
    assert on_the_disk < 3 << 20
    assert on_the_disk <= Page.objects.get().kept_bytes < 3 << 20


def test_what_is_retained_no_more_is_counted_no_more(site: Site, store: PageStore, monkeypatch: Any) -> None:
    site.write(index_html="one")
    (site.folder / "app-B1xYz9aQ.js").write_text("one")
    site.create(slug="abc")
    limit_settings(monkeypatch, page_releases=1)
    (site.folder / "app-B1xYz9aQ.js").unlink()
    site.deploy("abc")
    page = Page.objects.get()
    limit_settings(monkeypatch, pages_account_max_bytes=page.kept_bytes)
    assert_error(site.deploy("abc"), 402, "quota_exceeded")
    later = store.clock.now() + 86_401
    monkeypatch.setattr(store.clock, "now", lambda: later)
    publication.files_reconcile()
    page.refresh_from_db()
    assert page.kept_bytes == store.page_bytes(page.pk) == BLOCK + names_bytes(["index.html"])
    limit_settings(monkeypatch, pages_account_max_bytes=2 * page.kept_bytes)
    assert site.deploy("abc").status_code == 200


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
