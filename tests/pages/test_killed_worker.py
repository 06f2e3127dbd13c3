"""The worker is killed at each statement of a deploy: a whole release is live, and the next look leaves no rubbish."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from credits.models import Balance, Entry
from pages import publication
from pages.deploys import sweep
from pages.models import Page, PageDeploy, PageEvent, PageRelease
from pages.releases.store import PageStore
from pages.states import DeploymentState, DeployState
from tests.killed_process import killed_process
from tests.pages.conftest import Site
from tests.pages.killed import deploy_next
from tests.run_extent import campaign_after

pytestmark = pytest.mark.django_db(transaction=True)


def look_after(store: PageStore) -> None:
    """What beat does once the dead process is known to be dead."""
    PageDeploy.objects.filter(state=DeployState.RUNNING).update(lease_until=timezone.now() - timedelta(minutes=1))
    sweep.deploys_continue()
    publication.publications_continue()
    publication.files_reconcile()
    assert not any((store.root / "incoming").iterdir())


@pytest.mark.parametrize("stride", campaign_after(1, [4, 1]))
def test_a_worker_may_be_killed_at_any_statement(
    stride: int,
    vmhost: Any,
    site: Site,
    store: PageStore,
    served: Callable[[str], str | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site.create(slug="abc")
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"deploy_wait_seconds": 0, "page_releases": 3}))
    vmhost.hold_tasks()
    with killed_process() as process:
        for statement in count(1, stride):
            before, after = served("abc"), f"version {statement}"
            site.write(index_html=after)
            assert site.deploy("abc").status_code == 202
            killed = process.killed_at(statement, "tests.pages.killed.deploy_next")
            assert served("abc") in (before, after)
            look_after(store)
            assert served("abc") in (before, after)
            if PageDeploy.objects.filter(state=DeployState.QUEUED).exists():
                deploy_next()
            assert served("abc") == after
            named = set(PageRelease.objects.values_list("number", flat=True))
            assert named <= set(store.release_numbers(Page.objects.get().pk))
            if not killed:
                break
    assert statement > 20
    deploys = 1 + len(range(1, statement + 1, stride))  # the first is that of the site itself
    page = Page.objects.get()
    assert (page.deployment_state, page.is_stale) == (DeploymentState.DEPLOYED, False)
    assert not PageDeploy.objects.exclude(state=DeployState.SUCCEEDED).exists()
    assert Entry.objects.count() == PageEvent.objects.filter(action="deployed").count() == deploys
    balance = Balance.objects.get()
    assert (balance.used, balance.held) == (sum(entry.amount for entry in Entry.objects.all()), 0)
    assert publication.files_reconcile() == []
    rows = sorted(PageRelease.objects.values_list("number", flat=True))
    assert store.release_numbers(page.pk) == rows
    assert len(rows) == 3
    vmhost.held_tasks.clear()
