"""Requests at the same time: one page for a slug, one deploy for a page, and files that follow the last change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from accounts.actors import Actor
from accounts.scopes import Scope
from pages import publication, services
from pages.deploys import queue, requests
from pages.models import Page, PageDeploy
from pages.releases.store import PageStore
from tests.pages.conftest import Site
from tests.pages.rows import make_page
from tests.threads import run_at_once, wait_until
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)
COUNT = 6


def test_one_of_many_creations_gets_the_slug(vmhost: Any, site: Site) -> None:
    actor = Actor(site.api.account, Scope.ACCOUNT, "c", "a test")
    new = requests.NewPage(Workspace.objects.select_related("namespace").get(), "/site", slug="abc")
    outcomes = run_at_once(COUNT, lambda _: requests.page_create(actor=actor, new=new))
    assert sorted(outcomes) == ["PageSlugTaken"] * (COUNT - 1) + ["done"]
    vmhost.settle()
    assert (Page.objects.count(), PageDeploy.objects.count()) == (1, 1)


def test_creations_without_a_slug_get_one_each(vmhost: Any, site: Site) -> None:
    actor = Actor(site.api.account, Scope.ACCOUNT, "c", "a test")
    new = requests.NewPage(Workspace.objects.select_related("namespace").get(), "/site")
    outcomes = run_at_once(COUNT, lambda _: requests.page_create(actor=actor, new=new))
    assert outcomes == ["done"] * COUNT
    vmhost.settle()
    assert len(set(Page.objects.values_list("slug", flat=True))) == COUNT


def test_one_of_many_deploys_is_queued(vmhost: Any, site: Site) -> None:
    site.create(slug="abc")
    page, workspace = Page.objects.select_related("account").get(), Workspace.objects.get()
    vmhost.hold_tasks()
    fields = {"page": page, "workspace": workspace, "path": "/site", "actor": "a test"}
    outcomes = run_at_once(COUNT, lambda _: requests.page_deploy(**fields))
    assert sorted(outcomes) == ["DeployInProgress"] * (COUNT - 1) + ["done"]
    vmhost.release_tasks()
    vmhost.settle()
    assert Page.objects.get().release == 2


def test_of_claims_at_once_not_two_take_the_last_place_of_an_account(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"pages_threads": 4}))
    later = timezone.now() + timedelta(hours=1)
    made = [
        PageDeploy.objects.create(page=make_page(site.api.account), path="/site", deadline_at=later)
        for _ in range(COUNT)
    ]
    run_at_once(COUNT, lambda number: queue.claim_deploy(made[number].pk))
    assert PageDeploy.objects.filter(state="running").count() == 2


def test_the_files_follow_the_last_of_many_changes(
    site: Site, store: PageStore, served: Callable[[str], str | None]
) -> None:
    site.create(slug="abc")
    page = Page.objects.get()

    def change(number: int) -> None:
        if number % 3 == 0:
            changed = services.page_update(page=page, slug=f"slug-{number}", actor="a test")
        elif number % 3 == 1:
            changed = services.page_disable(page=page, actor="a test")
        else:
            changed = services.page_enable(page=page, actor="a test")
        assert publication.publish_page(changed)

    assert run_at_once(COUNT * 2, change) == ["done"] * COUNT * 2
    page.refresh_from_db()
    names = [path.name for path in (store.root / "by-slug/pages.localhost").iterdir()]
    assert names == ([page.slug] if page.status == "active" else [])
    assert not page.is_stale
    assert publication.files_reconcile() == []
    # The process that made the last changes dies before their files.
    services.page_disable(page=page, actor="a test")
    Page.objects.update(is_stale=True)
    services.page_enable(page=page, actor="a test")
    assert publication.publications_continue() == 1
    assert served(page.slug) == "one"


def test_a_change_of_files_locks_no_row_while_it_waits(
    site: Site, store: PageStore, served: Callable[[str], str | None]
) -> None:
    """Reconcile holds the lock of the files; what it needs may take seconds."""
    site.create(slug="abc")
    page = Page.objects.get()
    services.page_update(page=page, slug="def", actor="a test")
    publishing = threading.Thread(target=lambda: (publication.publish_page(page), connection.close()))
    with store.page_locked(page.pk):
        publishing.start()
        wait_until(lambda: _is_waited_for(store.paths.page(page.pk)))
        assert run_at_once(1, lambda _: services.page_update(page=page, name="New", actor="a test")) == ["done"]
        assert (served("abc"), served("def")) == ("one", None)
    publishing.join()
    assert (served("abc"), served("def")) == (None, "one")


def _is_waited_for(folder: Path) -> bool:
    inode = f":{folder.stat().st_ino} "
    return any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_release_that_changes_while_its_files_are_prepared_is_prepared_again(
    site: Site, store: PageStore, served: Callable[[str], str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("one", "two", "three"):
        site.write(index_html=text)
        assert (site.deploy("abc") if text != "one" else site.create(slug="abc")).status_code in (200, 201)
    page = Page.objects.get()
    prepare, seen = store.release_prepare, []

    def rolled_back_again(page_id: str, number: int) -> None:
        seen.append(number)
        prepare(page_id, number)
        if number == 1:
            services.page_rollback(page=page, number=2, actor="another")

    monkeypatch.setattr(store, "release_prepare", rolled_back_again)
    publication.publish_page(services.page_rollback(page=page, number=1, actor="a test"))
    assert (seen, served("abc")) == ([1, 2], "two")


def test_deploys_at_once_do_not_both_take_the_last_of_the_limit(
    vmhost: Any, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write(index_html="0123456789")
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"pages_account_max_bytes": 30_000}))
    actor = Actor(site.api.account, Scope.ACCOUNT, "c", "a test")
    new = requests.NewPage(Workspace.objects.select_related("namespace").get(), "/site")
    assert run_at_once(2, lambda _: requests.page_create(actor=actor, new=new)) == ["done"] * 2
    vmhost.settle()
    assert sorted(Page.objects.values_list("deployment_state", flat=True)) == ["deployed", "failed"]
