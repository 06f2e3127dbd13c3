"""Credits of deploys: held when one is requested, charged when its release is live, given back when it fails."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.actors import Actor
from accounts.scopes import Scope
from credits import holds
from credits.ledger import quota_set
from credits.models import Balance, Entry, Hold, Rate, Service, Unit
from namespaces.models import Namespace
from pages.deploys import requests, sweep
from pages.models import Page, PageDeploy
from pages.services import pages_move
from tests.killed_process import killed_process
from tests.pages.conftest import Site
from tests.threads import run_at_once
from tests.webhooks.outbox import passed_thresholds, subscribe
from tests.world import assert_error
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)
PRICE = Decimal(3)


@pytest.fixture(autouse=True)
def price(db: None) -> None:
    since = timezone.now() - timedelta(hours=1)
    Rate.objects.create(unit=Unit.PAGE_DEPLOY, credits=PRICE, effective_from=since)


def set_quota(limit: int) -> None:
    quota_set(
        namespace=Namespace.objects.get(is_default=True),
        service=Service.DEPLOYMENT,
        limit=Decimal(limit),
        overdraft=Decimal(0),
        action="block",
        thresholds=[],
    )


def sums() -> tuple[Decimal, Decimal]:
    """What is used and what is held."""
    found = Balance.objects.get(service=Service.DEPLOYMENT)
    return found.used, found.held


@pytest.fixture
def not_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"deploy_wait_seconds": 0}))


def test_a_creation_takes_the_locks_of_the_ledger_before_that_of_the_namespace(vmhost: Any, site: Site) -> None:
    """As a refusal that is announced and a quota that is set do: in another order two wait for each other."""
    set_quota(3)
    with CaptureQueriesContext(connection) as queries:
        site.create()
    statements = [query["sql"] for query in queries]
    held, used = (
        next(place for place, sql in enumerate(statements) if words in sql)
        for words in ("credits_hold", 'UPDATE "namespaces_namespace"')
    )
    assert held < used


def test_of_20_creations_at_once_one_goes_through_where_there_are_credits_for_one(vmhost: Any, site: Site) -> None:
    subscribe(site.api.account)
    set_quota(3)
    vmhost.hold_tasks()
    actor = Actor(site.api.account, Scope.ACCOUNT, "c", "a test")
    new = requests.NewPage(Workspace.objects.select_related("namespace").get(), "/site")
    outcomes = run_at_once(20, lambda _: requests.page_create(actor=actor, new=new))
    assert (outcomes.count("done"), outcomes.count("CreditsUsedUp")) == (1, 19)
    assert (sums(), Page.objects.count()) == ((0, 3), 1)
    details = site.create().json()["details"]
    assert (details["quota_used"], details["held"], details["quota_limit"]) == (0, 3, 3)
    vmhost.release_tasks()
    vmhost.settle()
    assert (sums(), Page.objects.get().release) == ((3, 0), 1)
    assert_error(site.create(), 402, "quota_exceeded")
    assert passed_thresholds(site.api.account) == ["depleted"]


def test_of_deploys_of_many_pages_at_once_no_more_go_through_than_there_are_credits_for(
    vmhost: Any, site: Site
) -> None:
    for number in range(6):
        site.create(slug=f"page-{number}")
    pages, workspace = list(Page.objects.select_related("account")), Workspace.objects.get()
    set_quota(6 * 3 + 2 * 3)
    outcomes = run_at_once(
        6, lambda number: requests.page_deploy(page=pages[number], workspace=workspace, path="/site", actor="a test")
    )
    assert (outcomes.count("done"), outcomes.count("CreditsUsedUp")) == (2, 4)
    vmhost.settle()
    assert sums() == (8 * 3, 0)
    assert sorted(Page.objects.values_list("release", flat=True)) == [1, 1, 1, 1, 2, 2]


def test_a_deploy_that_fails_gives_its_credits_back(site: Site) -> None:
    set_quota(6)
    site.create(slug="abc")
    for _ in range(2):
        assert_error(site.deploy("abc", path="/nothing-there"), 404, "path_not_found")
        assert sums() == (3, 0)
    assert site.deploy("abc").status_code == 200
    assert (sums(), Entry.objects.count()) == ((6, 0), 2)


def test_a_deploy_past_its_deadline_gives_its_credits_back(vmhost: Any, site: Site, not_waiting: None) -> None:
    vmhost.hold_tasks()
    assert site.create(slug="abc").status_code == 202
    assert sums() == (0, 3)
    PageDeploy.objects.update(deadline_at=timezone.now() - timedelta(seconds=1))
    assert [sweep.deploys_expire() for _ in range(2)] == [1, 0]
    assert (sums(), Hold.objects.count()) == ((0, 0), 0)
    vmhost.held_tasks.clear()


def test_a_page_that_is_deleted_during_its_deploy_gives_its_credits_back(
    vmhost: Any, site: Site, not_waiting: None
) -> None:
    site.create(slug="abc")
    vmhost.settle()
    vmhost.hold_tasks()
    assert site.deploy("abc").status_code == 202
    assert sums() == (3, 3)
    assert site.api.delete("/pages/abc").status_code == 200
    assert (sums(), Hold.objects.count()) == ((3, 0), 0)
    vmhost.held_tasks.clear()


def test_the_namespace_that_holds_pays_also_when_the_page_was_moved(vmhost: Any, site: Site, not_waiting: None) -> None:
    vmhost.hold_tasks()
    site.create(slug="abc")
    first = Namespace.objects.get()
    other = Namespace.objects.create(account=site.api.account, name="Other", slug="other")
    pages_move(first, other, "a test")
    vmhost.release_tasks()
    vmhost.settle()
    assert (Balance.objects.get().namespace_id, sums()) == (first.pk, (3, 0))


def test_a_deploy_whose_hold_has_expired_is_charged_all_the_same(vmhost: Any, site: Site, not_waiting: None) -> None:
    vmhost.hold_tasks()
    site.create(slug="abc")
    Hold.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert (holds.holds_expire(), sums()) == (1, (0, 0))
    vmhost.release_tasks()
    vmhost.settle()
    assert (sums(), Entry.objects.count()) == ((3, 0), 1)
    call_command("ledger_check")  # raises where something differs


def test_a_hold_outlives_the_deadline_of_its_deploy(vmhost: Any, site: Site, not_waiting: None) -> None:
    vmhost.hold_tasks()
    site.create(slug="abc")
    assert Hold.objects.get().expires_at > PageDeploy.objects.get().deadline_at + timedelta(minutes=30)
    vmhost.held_tasks.clear()


def test_a_deploy_that_costs_nothing_holds_nothing(site: Site) -> None:
    Rate.objects.filter(unit=Unit.PAGE_DEPLOY).update(credits=0)
    site.create(slug="abc")
    assert not Balance.objects.filter(service=Service.DEPLOYMENT).exists()


@pytest.mark.parametrize("what", ["request_deploy", "delete"])
def test_a_request_that_is_killed_at_any_statement_leaves_a_hold_for_each_deploy_and_no_other(
    what: str, vmhost: Any, site: Site, not_waiting: None
) -> None:
    site.create(slug="abc")
    vmhost.settle()
    vmhost.hold_tasks()
    if what == "delete":
        site.deploy("abc")
    with killed_process() as process:
        for statement in count(1):
            killed = process.killed_at(statement, f"tests.pages.killed.{what}")
            live = PageDeploy.objects.filter(state__in=["queued", "running"])
            assert sums()[1] == PRICE * live.count() == PRICE * Hold.objects.count()
            if not killed:
                break
            if what == "request_deploy" and live.exists():
                live.update(deadline_at=timezone.now() - timedelta(seconds=1))
                assert sweep.deploys_expire() == 1
    assert statement > 6
    vmhost.held_tasks.clear()


def test_a_failure_that_is_killed_at_any_statement_gives_the_credits_back_with_it(
    vmhost: Any, site: Site, not_waiting: None
) -> None:
    site.create(slug="abc")
    vmhost.settle()
    vmhost.hold_tasks()
    site.deploy("abc")
    PageDeploy.objects.filter(state="queued").update(deadline_at=timezone.now() - timedelta(seconds=1))
    with killed_process() as process:
        for statement in count(1):
            killed = process.killed_at(statement, "pages.deploys.sweep.deploys_expire")
            failed = PageDeploy.objects.filter(state="failed").exists()
            assert sums() == ((3, 0) if failed else (3, 3))
            if not killed:
                break
    assert failed
    assert statement > 4
    vmhost.held_tasks.clear()
