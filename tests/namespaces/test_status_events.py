"""`namespace.suspended` and `namespace.restored`: once for each real change, with what caused it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from credits import ledger
from credits.entries import Purpose
from credits.models import Service
from namespaces import status_events
from namespaces.models import Namespace, Status
from tests.callers import Caller
from tests.staff.pages import confirm
from tests.webhooks.outbox import published, subscribe
from tests.webhooks.receiver import pass_time
from tests.world import assert_error

pytestmark = pytest.mark.django_db

SUSPENDED, RESTORED = "namespace.suspended", "namespace.restored"


@pytest.fixture
def team(api: Caller) -> Namespace:
    subscribe(api.account, SUSPENDED, RESTORED)
    return Namespace.objects.create(account=api.account, name="Team", slug="team")


def changes(team: Namespace) -> list[tuple[str, Any]]:
    found = published(team.account)
    assert {data["namespace"] for _, data in found} <= {"team"}
    return [(name, data["reason"]) for name, data in found]


def use_up(team: Namespace) -> None:
    common = {"namespace": team, "service": Service.SANDBOX}
    ledger.quota_set(**common, limit=Decimal(1), overdraft=Decimal(0), action="block", thresholds=[])  # type: ignore[arg-type]
    ledger.credits_charge(**common, amount=Decimal(2), purpose=Purpose())  # type: ignore[arg-type]


def reset(team: Namespace) -> None:
    ledger.quota_reset(namespace=team, service=Service.SANDBOX, actor="a")


def test_a_suspension_by_hand(api: Caller, team: Namespace) -> None:
    for path in ("suspend", "suspend", "activate", "activate"):
        assert api.post(f"/namespaces/team/{path}").status_code == 200
    assert changes(team) == [(SUSPENDED, "manual"), (RESTORED, "manual")]
    for status in ("inactive", "active", "suspended"):
        api.put("/namespaces/team", {"status": status})
    assert changes(team)[2:] == [(SUSPENDED, "manual")]


def test_requests_announce_no_more_changes_than_a_receiver_may_get(
    api: Caller, stranger: Caller, team: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_events, "MOST_IN_A_MINUTE", 4)
    Namespace.objects.create(account=stranger.account, name="Team", slug="team")
    for path in ("suspend", "activate") * 2:
        assert api.post(f"/namespaces/team/{path}").status_code == 200
    refused = api.post("/namespaces/team/suspend")
    assert_error(refused, 429, "rate_limited")
    assert refused["Retry-After"] == "60"
    assert_error(api.put("/namespaces/team", {"status": "suspended"}), 429, "rate_limited")
    team.refresh_from_db()
    assert (team.status, len(changes(team))) == (Status.ACTIVE, 4)
    assert api.post("/namespaces/team/activate").status_code == 200, "it changes nothing"
    assert stranger.post("/namespaces/team/suspend").status_code == 200
    use_up(team)
    assert len(changes(team)) == 5, "a charge announces what it finds"
    quota = {"namespace": "team", "service": "sandbox", "quotaLimit": 9, "overdraft": 0}
    assert_error(api.post("/credits/namespace-quota", quota), 429, "rate_limited")
    pass_time(timedelta(minutes=1))
    assert api.post("/credits/namespace-quota", quota).status_code == 200
    assert api.post("/namespaces/team/suspend").status_code == 200
    assert len(changes(team)) == 7


def test_what_nobody_is_sent_is_not_limited(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_events, "MOST_IN_A_MINUTE", 1)
    Namespace.objects.create(account=api.account, name="Team", slug="team")
    for path in ("suspend", "activate") * 2:
        assert api.post(f"/namespaces/team/{path}").status_code == 200


def test_a_suspension_by_a_quota(team: Namespace) -> None:
    use_up(team)
    use_up(team)
    reset(team)
    reset(team)
    assert changes(team) == [(SUSPENDED, "quota"), (RESTORED, "quota")]


def test_one_that_is_suspended_by_both_is_restored_when_the_last_is_lifted(api: Caller, team: Namespace) -> None:
    use_up(team)
    api.post("/namespaces/team/suspend")
    reset(team)
    assert changes(team) == [(SUSPENDED, "quota")]
    api.post("/namespaces/team/activate")
    assert changes(team)[1:] == [(RESTORED, "manual")]
    api.post("/namespaces/team/suspend")
    use_up(team)
    api.post("/namespaces/team/activate")
    reset(team)
    assert changes(team)[2:] == [(SUSPENDED, "manual"), (RESTORED, "quota")]


def test_what_staff_do(team: Namespace, staff: Client) -> None:
    for action in ("suspend", "suspend", "activate"):
        confirm(staff, "namespaces/namespace", action, team.pk, reason="why")
    assert changes(team) == [(SUSPENDED, "manual"), (RESTORED, "manual")]


def test_a_refused_suspension_publishes_nothing(api: Caller, team: Namespace) -> None:
    subscribe(api.account)
    assert api.post("/namespaces/default/suspend").status_code == 409
    assert published(team.account) == []
