"""What a deploy may bring and an account may keep: the export, what a guest sends, releases, room on the disk."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DataError

from pages import publication
from pages.models import Page, PageDeploy, PageRelease
from pages.releases.disk_use import BLOCK, names_bytes
from pages.releases.store import PageStore
from tests.pages.archives import END, entry, pax, record
from tests.pages.conftest import Site
from tests.pages.limits import limit_settings
from tests.world import assert_error

pytestmark = pytest.mark.django_db(transaction=True)
Served = Callable[[str], str | None]


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


def test_links_that_lead_too_far_are_413_with_advice(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    link = entry("l", kind=tarfile.SYMTYPE, link="./" * 45 + "index.html")
    site.archive.write_bytes(entry("index.html", b"one") + link + END)
    limit_settings(monkeypatch, page_max_files=1)
    answer = site.create()
    assert_error(answer, 413, "payload_too_large")
    assert answer.json()["message"].startswith("Too many files or links lie or lead deep below the exported folder")
    assert answer.json()["details"] == {"limit": "path_steps", "max": 40, "path": "l"}


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


def test_how_long_chunks_of_the_release_before_are_served_is_a_setting(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk, slugs = site.folder / "app-B1xYz9aQ.js", {0: "none", 3600: "hour"}
    for seconds, slug in slugs.items():
        limit_settings(monkeypatch, page_retained_seconds=seconds)
        store = publication.page_store()
        chunk.write_text("old")
        assert site.create(slug=slug).status_code == 201
        chunk.unlink()
        assert site.deploy(slug).status_code == 200
        page = Page.objects.get(slug=slug)
        retained, now = store.paths.page(page.pk) / "retained" / chunk.name, store.clock.now()
        assert retained.exists() == (seconds > 0)
        assert not store.expire_retained(page.pk, now + seconds - 60)
        assert store.expire_retained(page.pk, now + seconds + 60) == (seconds > 0)
        assert not retained.exists()


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
