"""Files of the edge follow the rows, also where the process that changed them was killed at any statement."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from accounts.services import account_switch
from domains import publication
from domains.models import CustomDomain, DomainName
from domains.services import domain_disconnect
from edge.domain_files import DomainFiles
from pages import services
from tests.callers import Caller
from tests.certificates.rows import certificate_make
from tests.domains.zone import EDGE_ADDRESS, Zone
from tests.killed_process import killed_process
from tests.pages.rows import make_page
from tests.workspaces.rows import make_workspace
from workspaces.network.services import port_publish
from workspaces.rows import delete_row

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = ("example.com", "www.example.com")


@pytest.fixture
def page(api: Caller, zone: Zone, files: DomainFiles) -> Any:
    found = make_page(api.account, slug="site", release=1)
    for name in NAMES:
        zone.set(name, A=EDGE_ADDRESS)
    zone.prove("example.com", found.pk)
    return found


def connect(api: Caller) -> None:
    assert api.post("/pages/site/domain", {"domain": "example.com", "include_www": True}).status_code == 200


def links_of(page: Any) -> dict[str, str]:
    return {"example.com": f"../../pages/by-id/{page.pk}", "www.example.com": "../kinds/www"}


def test_a_domain_leads_to_its_page_as_long_as_that_is_served(api: Caller, page: Any, files: DomainFiles) -> None:
    connect(api)
    assert files.links() == links_of(page)
    api.post("/pages/site/disable")
    assert files.links() == {}
    api.post("/pages/site/enable")
    account_switch(api.account, is_active=False)
    assert files.links() == {}
    account_switch(api.account, is_active=True)
    api.put("/pages/site", {"slug": "renamed"})
    assert files.links() == links_of(page)
    api.delete("/pages/renamed")
    assert files.links() == {}
    assert not DomainName.objects.exists()


def test_a_domain_leads_to_a_port_as_long_as_its_workspace_is_there(
    api: Caller, zone: Zone, files: DomainFiles
) -> None:
    workspace = make_workspace(api.account)
    port_publish(workspace=workspace, actor="t", port=80)
    zone.point("app.example.com")
    zone.prove("app.example.com", workspace.pk)
    api.post(f"/workspace/{workspace.pk}/domain", {"domain": "app.example.com", "port": 80})
    assert files.links() == {"app.example.com": "../kinds/port"}
    with transaction.atomic():
        delete_row(workspace)
    assert files.links() == {}


def test_a_name_that_changes_its_owner_always_leads_to_one(api: Caller, page: Any, files: DomainFiles) -> None:
    connect(api)
    inode = (files.root / "by-name/example.com").lstat().st_ino
    assert files.link_set("example.com", "../kinds/port")
    assert (files.root / "by-name/example.com").lstat().st_ino != inode
    assert publication.names_reconcile() == ["corrected example.com"]
    assert files.links() == links_of(page)


def test_reconcile_makes_the_files_what_the_rows_say(api: Caller, page: Any, files: DomainFiles) -> None:
    connect(api)
    shutil.rmtree(files.root / "by-name")
    (files.root / "by-name").mkdir()
    files.link_set("unknown.example.com", "../kinds/port")
    (files.root / "new.1234").symlink_to("x")
    (files.root / "by-name/UPPER").symlink_to("x")
    assert len(publication.names_reconcile()) == 4
    assert files.links() == links_of(page)
    assert publication.names_reconcile() == []


def test_what_could_not_be_applied_is_applied_later(
    api: Caller, page: Any, files: DomainFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(DomainFiles, "link_set", _full_disk)
        connect(api)
        assert publication.names_continue() == 0
    assert files.links() == {}
    assert publication.names_continue() == 2
    assert files.links() == links_of(page)
    assert publication.names_continue() == 0


def test_names_that_cannot_be_applied_keep_no_others_from_it(
    api: Caller, page: Any, files: DomainFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "BATCH", 2)
    names = [f"{letter}.example.com" for letter in "abcdefg"]
    DomainName.objects.bulk_create(DomainName(name=name, is_stale=True) for name in names)
    tried = []

    def apply(name: str) -> None:
        tried.append(name)
        if name in names[:4]:
            raise OSError(13, "Permission denied")

    monkeypatch.setattr(publication, "name_publish", apply)
    assert publication.names_continue() == 3
    assert tried == names
    monkeypatch.setattr(publication, "CONTINUE_SECONDS", 0.0)
    assert publication.names_continue() == 0
    assert tried == [*names, *names[:2]]


def _full_disk(*args: Any) -> bool:
    raise OSError(28, "No space left on device")


def test_marks_of_certificates_are_made_and_removed(files: DomainFiles) -> None:
    mark = files.root / "tls/example.com"
    for present in (True, True, False, False):
        publication.mark_certificate("example.com", present)
        assert mark.exists() is present


def test_reconcile_makes_marks_what_the_certificates_say(files: DomainFiles) -> None:
    """A mark without a certificate leads every visitor to a handshake that fails."""
    certificate_make("served.example.com")
    certificate_make("expired.example.com", status="expired")
    for name in ("expired.example.com", "unknown.example.com"):
        files.set_tls(name, present=True)
    (files.root / "tls/UPPER").touch()
    assert len(publication.names_reconcile()) == 3
    assert files.tls_names() == {"served.example.com", "UPPER"}
    assert publication.names_reconcile() == []


@pytest.mark.parametrize(
    "name", ["..", "a", "A.example.com", "a/../b.com", "a.com/", "", "a\n.com", "x" * 300 + ".com"]
)
def test_no_other_file_is_reached_by_a_name(files: DomainFiles, name: str, tmp_path: Path) -> None:
    for change in (lambda: files.link_set(name, "x"), lambda: files.set_tls(name, present=True)):
        with pytest.raises(ValueError, match="not a domain"):
            change()


@pytest.mark.parametrize("work", ["connect", "disconnect", "disable", "delete"])
def test_a_process_that_is_killed_leaves_nothing_that_reconcile_does_not_correct(
    api: Caller, page: Any, files: DomainFiles, zone: Zone, work: str
) -> None:
    with killed_process() as process:
        for statement in range(1, 200):
            if work != "connect" and not CustomDomain.objects.exists():
                connect(api)
            went_on = process.killed_at(statement, f"tests.domains.killed.{work}")
            publication.names_continue()
            assert publication.names_reconcile() == [], "the sweep of changed names was enough"
            connected = CustomDomain.objects.exists()
            served = connected and type(page).objects.get(pk=page.pk).status == "active"
            assert files.links() == (links_of(page) if served else {})
            if not went_on:
                break
            _restore(work, api, page)
    assert statement > 5
    assert connected is (work in ("connect", "disable"))


def _restore(work: str, api: Caller, page: Any) -> None:
    if work == "connect" and (found := CustomDomain.objects.first()) is not None:
        domain_disconnect(domain=found, actor="t")
    if not type(page).objects.filter(pk=page.pk).exists():
        page.save(force_insert=True)
    services.page_enable(page=page, actor="t")
