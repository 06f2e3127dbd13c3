"""Archives whose headers lie about sizes, through whole deploys: the live release stays, and nothing is left behind."""

from __future__ import annotations

import socket
import tarfile
from collections.abc import Callable

import pytest
from django.conf import settings

from pages.models import PageDeploy, PageRelease
from pages.releases.store import PageStore
from tests.pages.archives import END, entry, header, padded
from tests.pages.conftest import Site
from tests.pages.stores import unfinished
from tests.world import assert_error

pytestmark = pytest.mark.django_db(transaction=True)
GOOD = entry("./index.html", b"two")
LIES = {
    "larger than what follows": GOOD + header("./a.html", 5000) + padded(b"short"),
    "larger, with the end of the archive in it": GOOD + header("./a.html", 5000) + END,
    "smaller than what follows": GOOD + header("./a.html", 1) + padded(b"x" * 1500) + END,
    "nothing of what is announced": GOOD + header("./a.html", 512),
    "a folder with data": GOOD + header("./a/", 2000, tarfile.DIRTYPE) + padded(b"x" * 2000) + END,
    "negative": GOOD + header("./a.html", field=b"\xff" * 12) + END,
}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"retry_seconds": 0.0}))


@pytest.mark.parametrize("lie", list(LIES))
def test_a_false_size_fails_the_deploy_alone(
    site: Site, store: PageStore, served: Callable[[str], str | None], lie: str
) -> None:
    assert site.create(slug="abc").status_code == 201
    site.archive.write_bytes(LIES[lie])
    assert_error(site.deploy("abc"), 503, "VM_UNAVAILABLE")
    assert PageDeploy.objects.latest("created_at").attempt == 3
    assert served("abc") == "one"
    assert unfinished(store) == []
    assert PageRelease.objects.count() == 1
    site.archive.unlink()
    site.write(index_html="three")
    assert site.deploy("abc").status_code == 200
    assert served("abc") == "three"


def test_sizes_beyond_the_limits_are_refused_before_they_are_read(site: Site, store: PageStore) -> None:
    assert site.create(slug="abc").status_code == 201
    for size in (settings.ENV.page_file_max_bytes + 1, 1 << 40, (1 << 63) - 1):
        site.archive.write_bytes(GOOD + header("./film.bin", size))
        answer = site.deploy("abc")
        assert_error(answer, 413, "payload_too_large")
        body = answer.json()
        assert (body["details"]["limit"], body["details"]["path"]) == ("file_bytes", "film.bin")
    assert unfinished(store) == []


def test_a_socket_in_the_folder_is_listed(site: Site) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(site.folder / "app.sock"))
        (site.folder / "line\nbreak.html").write_text("x")
        answer = site.create(slug="abc").json()
    found = {(entry["path"], entry["reason"]) for entry in answer["skipped"]}
    assert ("app.sock", "socket") in found
    assert answer["skipped_count"] == len(answer["skipped"])
