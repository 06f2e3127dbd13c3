"""Whose a name is: the TXT record decides, against claims without one, old ones, and others at the same moment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

import domains.check
from certificates.models import Certificate
from domains.check import check_domain
from domains.models import CustomDomain, DomainName, TargetKind
from domains.services import Target, domain_connect
from pages.models import PageEvent
from tests.callers import Caller
from tests.domains.zone import Zone
from tests.pages.rows import make_page
from tests.threads import run_at_once
from tests.workspaces.rows import make_workspace
from tests.world import assert_error
from workspaces.network.services import port_publish

NAME = "www.example.com"
pytestmark = pytest.mark.django_db


@pytest.fixture
def mine(api: Caller, zone: Zone) -> Any:
    zone.point(NAME)
    return make_page(api.account, slug="mine")


@pytest.fixture
def theirs(stranger: Caller, zone: Zone) -> Any:
    return make_page(stranger.account, slug="theirs")


def connect(caller: Caller, page: Any, name: str = NAME, **fields: Any) -> Any:
    return caller.post(f"/pages/{page.slug}/domain", {"domain": name, **fields})


def holder(name: str = NAME) -> str | None:
    found = DomainName.objects.filter(pk=name).select_related("domain").first()
    return found.domain.target_id if found and found.domain else None


def test_an_unproven_claim_blocks_no_one(
    api: Caller, stranger: Caller, mine: Any, theirs: Any, zone: Zone, env: Any
) -> None:
    env(domain_verification=False)
    assert connect(stranger, theirs).status_code == 200
    assert holder() == theirs.pk
    zone.prove(NAME, mine.pk)
    assert connect(api, mine).status_code == 200
    assert holder() == mine.pk
    assert stranger.get("/pages/theirs/domain").json()["domain"] is None
    assert PageEvent.objects.filter(page_id=theirs.pk, action="domain_lost").exists()


def test_a_second_unproven_claim_waits_for_the_first(
    api: Caller, stranger: Caller, mine: Any, theirs: Any, zone: Zone, env: Any
) -> None:
    env(domain_verification=False)
    connect(stranger, theirs)
    assert connect(api, mine).status_code == 200
    assert holder() == theirs.pk
    assert_error(api.post("/pages/mine/domain/ssl/renew"), 409, "conflict")
    stranger.delete("/pages/theirs/domain")
    assert holder() == mine.pk


def test_a_proven_name_is_taken(api: Caller, stranger: Caller, mine: Any, theirs: Any, zone: Zone, env: Any) -> None:
    zone.prove(NAME, mine.pk)
    connect(api, mine)
    env(domain_verification=False)
    refused = connect(stranger, theirs)
    assert_error(refused, 409, "domain_taken")
    assert refused.json()["details"] == {"domain": NAME}
    zone.prove(NAME, mine.pk, theirs.pk)
    assert_error(connect(stranger, theirs), 409, "domain_taken")
    assert holder() == mine.pk


def test_a_name_whose_record_is_gone_is_served_until_another_proves_it(
    api: Caller, stranger: Caller, mine: Any, theirs: Any, zone: Zone
) -> None:
    zone.prove(NAME, mine.pk)
    connect(api, mine)
    zone.prove(NAME)
    assert holder() == mine.pk
    assert_error(connect(stranger, theirs), 400, "domain_not_verified")
    zone.prove(NAME, theirs.pk)
    assert connect(stranger, theirs).status_code == 200
    assert holder() == theirs.pk
    assert not CustomDomain.objects.filter(target_id=mine.pk).exists()


def test_a_domain_moves_between_a_page_and_a_workspace_of_one_account(api: Caller, mine: Any, zone: Zone) -> None:
    workspace = make_workspace(api.account)
    port_publish(workspace=workspace, actor="t", port=80)
    zone.prove(NAME, mine.pk)
    connect(api, mine)
    zone.prove(NAME, workspace.pk)
    assert api.post(f"/workspace/{workspace.pk}/domain", {"domain": NAME, "port": 80}).status_code == 200
    assert holder() == workspace.pk


def test_a_record_of_the_www_name_itself_is_closer_than_that_of_the_domain(
    api: Caller, stranger: Caller, mine: Any, theirs: Any, zone: Zone
) -> None:
    zone.point("example.com")
    zone.prove("example.com", mine.pk)
    connect(api, mine, "example.com", include_www=True)
    assert holder() == mine.pk
    zone.prove(NAME, theirs.pk)
    assert connect(stranger, theirs).status_code == 200
    assert (holder(), holder("example.com")) == (theirs.pk, mine.pk)
    assert api.get("/pages/mine/domain").json()["domain"]["include_www"] is False
    assert_error(connect(api, mine, "example.com", include_www=True), 409, "domain_taken")
    assert holder() == theirs.pk


def test_what_the_dns_said_before_another_proof_does_not_count(
    stranger: Caller, mine: Any, theirs: Any, zone: Zone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record changes while the first one's check is under way, and the second one is connected then."""
    zone.prove(NAME, theirs.pk)
    checks = []

    def slow(name: str, target_id: str, **options: Any) -> Any:
        found = check_domain(name, target_id, **options)
        checks.append(target_id)
        if len(checks) == 1:
            zone.prove(NAME, mine.pk)
            domain_connect(target=Target(TargetKind.PAGE, mine.pk, mine.account), name=name, actor="t")
        return found

    monkeypatch.setattr(domains.check, "check_domain", slow)
    assert_error(connect(stranger, theirs), 400, "domain_not_verified")
    assert (holder(), checks) == (mine.pk, [theirs.pk, mine.pk, theirs.pk])


def test_a_proof_of_a_clock_that_was_ahead_blocks_no_one(
    api: Caller, stranger: Caller, mine: Any, theirs: Any, zone: Zone
) -> None:
    zone.prove(NAME, mine.pk)
    connect(api, mine)
    CustomDomain.objects.update(proven_at=timezone.now() + timedelta(days=30))
    zone.prove(NAME, theirs.pk)
    assert connect(stranger, theirs).status_code == 200
    assert holder() == theirs.pk


def test_what_waited_unproven_inherits_nothing_once_proofs_are_demanded(
    api: Caller, stranger: Caller, mine: Any, theirs: Any, zone: Zone, env: Any
) -> None:
    env(domain_verification=False)
    connect(stranger, theirs)
    connect(api, mine)
    assert holder() == theirs.pk
    env(domain_verification=True)
    stranger.delete("/pages/theirs/domain")
    assert holder() is None
    zone.prove(NAME, mine.pk)
    assert connect(api, mine).status_code == 200
    assert holder() == mine.pk


def test_orders_count_for_the_account_that_has_the_name(
    api: Caller, stranger: Caller, mine: Any, theirs: Any, zone: Zone, env: Any
) -> None:
    env(domain_verification=False)
    connect(stranger, theirs)
    connect(api, mine)
    assert Certificate.objects.get().owner == stranger.account.pk
    stranger.delete("/pages/theirs/domain")
    assert (holder(), Certificate.objects.get().owner) == (mine.pk, api.account.pk)
    zone.prove(NAME, theirs.pk)
    connect(stranger, theirs)
    assert (holder(), Certificate.objects.get().owner) == (theirs.pk, stranger.account.pk)


@pytest.mark.django_db(transaction=True)
def test_of_two_accounts_that_prove_a_name_at_once_one_has_it(
    api: Caller, stranger: Caller, mine: Any, theirs: Any, zone: Zone, files: Any
) -> None:
    for number in range(3):
        name = f"n{number}.example.com"
        zone.point(name)
        zone.prove(name, mine.pk, theirs.pk)
        targets = [Target(TargetKind.PAGE, page.pk, page.account) for page in (mine, theirs)]
        ended = run_at_once(2, lambda at: domain_connect(target=targets[at], name=name, actor="t"))  # noqa: B023
        assert sorted(ended) == ["DomainTaken", "done"]
        winner = (mine, theirs)[ended.index("done")]
        assert holder(name) == winner.pk
        assert files.link_of(name) == f"../../pages/by-id/{winner.pk}"
        assert CustomDomain.objects.filter(name=name).count() == 1


@pytest.mark.django_db(transaction=True)
def test_many_changes_of_one_page_at_once_leave_its_last_domain_alone(
    api: Caller, mine: Any, zone: Zone, files: Any
) -> None:
    names = [f"n{number}.example.com" for number in range(6)]
    for name in names:
        zone.point(name)
        zone.prove(name, mine.pk)
    target = Target(TargetKind.PAGE, mine.pk, mine.account)
    ended = run_at_once(6, lambda at: domain_connect(target=target, name=names[at], include_www=False, actor="t"))
    assert set(ended) == {"done"}
    row = CustomDomain.objects.get()
    assert files.links() == {row.name: f"../../pages/by-id/{mine.pk}"}
    assert list(DomainName.objects.values_list("name", flat=True)) == [row.name]
    assert row.proven_at is not None
    assert row.proven_at <= timezone.now()
