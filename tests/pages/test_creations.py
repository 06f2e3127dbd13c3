"""A creation that failed frees its slug, also where the waiting process died; what is deleted is not charged."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from common.errors import NotFound
from common.work.leases import ClaimLost
from credits.models import Entry
from pages import services
from pages.deploys import creations, outcomes, queue, steps, worker
from pages.models import Page, PageDeploy, PageEvent
from pages.states import DeploymentState, DeployState
from tests.callers import Caller
from tests.pages.conftest import Site
from tests.pages.rows import make_page
from tests.world import assert_error

pytestmark = pytest.mark.django_db(transaction=True)


def abandoned(caller: Caller, *, slug: str = "abc", after: float = 5, ended_ago: float = 60) -> Page:
    """A page whose creation failed so long after it began, of an api that died while it waited."""
    finished = timezone.now() - timedelta(seconds=ended_ago)
    begun = finished - timedelta(seconds=after)
    page = make_page(caller.account, slug=slug, deployment_state=DeploymentState.FAILED, created_at=begun)
    state = {"state": DeployState.FAILED, "finished_at": finished, "created_at": begun, "deadline_at": finished}
    PageDeploy.objects.create(page=page, workspace_id="ws_gone", path="/site", **state)
    return page


def test_the_slug_of_a_failed_creation_is_free_for_the_next_one(site: Site) -> None:
    former = abandoned(site.api)
    assert site.create(slug="abc").status_code == 201
    assert Page.objects.get().pk != former.pk
    assert PageEvent.objects.filter(page_id=former.pk, action="discarded").count() == 1


def test_the_sweep_frees_it_for_another_account(site: Site, stranger: Caller) -> None:
    abandoned(stranger)
    assert_error(site.create(slug="abc"), 409, "slug_taken")
    assert [creations.discard_failed_creations(), creations.discard_failed_creations()] == [1, 0]
    assert site.create(slug="abc").status_code == 201


def test_what_a_request_may_still_read_or_an_owner_was_answered_with_stays(api: Caller) -> None:
    abandoned(api, slug="just-now", ended_ago=1)
    abandoned(api, slug="answered", after=settings.ENV.deploy_wait_seconds + 5)
    tried_again = abandoned(api, slug="tried-again")
    PageDeploy.objects.create(
        page=tried_again, workspace_id="ws_gone", path="/site", state=DeployState.FAILED, deadline_at=timezone.now()
    )
    served = abandoned(api, slug="served")
    Page.objects.filter(pk=served.pk).update(release=1)
    queued = abandoned(api, slug="queued")
    PageDeploy.objects.filter(page=queued).update(state=DeployState.QUEUED, finished_at=None)
    assert creations.discard_failed_creations() == 0
    assert Page.objects.count() == 5


@pytest.mark.parametrize("by_sweep", [True, False])
def test_a_worker_that_fails_a_creation_of_a_dead_api_leaves_nothing(
    vmhost: Any, site: Site, monkeypatch: pytest.MonkeyPatch, by_sweep: bool
) -> None:
    """From the request that died to the retry: only the worker and the sweep act between them."""
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"deploy_wait_seconds": 1}))
    vmhost.hold_tasks()
    assert site.create(slug="abc", path="/nothing").status_code == 202
    Page.objects.update(created_at=timezone.now())  # it died at once
    worker.deploy_run()
    assert_error(site.create(slug="abc"), 409, "slug_taken")
    monkeypatch.setattr(creations, "READ_WITHIN", timedelta(0))
    if by_sweep:
        assert creations.discard_failed_creations() == 1
        assert not Page.objects.exists()
    assert site.create(slug="abc").status_code == 202
    vmhost.held_tasks.clear()


def test_a_deploy_that_has_lost_its_claim_is_not_charged(api: Caller) -> None:
    page = make_page(api.account)
    queued = queue.enqueue_deploy(page, workspace_id="ws_gone", path="/site", actor="")
    deploy = queue.claim_deploy(queued.pk)
    assert deploy is not None
    PageDeploy.objects.update(claim="another")
    with pytest.raises(ClaimLost):
        outcomes.deploy_succeeded(deploy, kept_bytes=1)
    page.delete()
    with pytest.raises(NotFound):
        outcomes.deploy_succeeded(deploy, kept_bytes=1)
    assert not Entry.objects.exists()


def test_a_deploy_whose_page_is_deleted_while_it_is_activated_is_not_charged(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site.create(slug="abc")
    apply = steps.publication.apply_publication

    def apply_and_delete(page_id: str) -> None:
        apply(page_id)
        services.page_delete(page=Page.objects.get(pk=page_id), actor="its owner")

    monkeypatch.setattr(steps.publication, "apply_publication", apply_and_delete)
    assert_error(site.deploy("abc"), 404, "not_found")
    assert Entry.objects.count() == 1
    assert "Traceback" not in caplog.text
