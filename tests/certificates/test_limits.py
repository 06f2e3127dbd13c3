"""Limits of orders: of a name, of an account, of all, and those of the CA."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from certificates import services
from certificates.leases import due_ids
from certificates.models import AcmeAccount, Certificate, OrderAttempt
from certificates.steps import certificate_step
from common.errors import RateLimited
from tests.certificates.fake_ca import FakeCa, open_fake_ca
from tests.certificates.pebble import settings_with
from tests.certificates.rows import certificate_make

pytestmark = pytest.mark.django_db
NAME = "a.example.org"
GREEDY, OTHER = "acc_greedy", "acc_other"


@pytest.fixture
def fake(announced: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCa]:
    with open_fake_ca() as made:
        settings_with(monkeypatch, acme_directory=made.directory)
        yield made


def steps() -> None:
    for key in due_ids(100):
        certificate_step(key)


def test_no_account_uses_up_the_orders_of_all(fake: FakeCa, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_with(monkeypatch, acme_orders_per_hour=10, acme_orders_per_account=3)
    fake.answers["/order"] = fake.problem(403, "rejectedIdentifier", "no")
    services.certificate_request([f"n{number}.example.com" for number in range(20)], owner=GREEDY)
    steps()
    # Forced again and again, under names that come and go.
    for name in ("n0.example.com", "new.example.com"):
        services.certificate_remove([name])
        steps()
        services.certificate_request([name], owner=GREEDY)
    steps()
    assert OrderAttempt.objects.filter(owner=GREEDY).count() == OrderAttempt.objects.count() == 3
    with pytest.raises(RateLimited):
        services.certificate_renew(["n1.example.com"])
    # Which ones were ordered is not said: all were due at the same time.
    waiting = Certificate.objects.exclude(error="The CA refused: no")
    assert waiting.count() >= 17
    assert all(row.error.startswith("The limit of orders is reached") for row in waiting)
    services.certificate_request([NAME], owner=OTHER)
    steps()
    assert OrderAttempt.objects.filter(owner=OTHER).count() == 1


def test_five_orders_an_hour_are_of_the_name_and_not_of_its_owner(fake: FakeCa) -> None:
    fake.answers["/order"] = fake.problem(403, "rejectedIdentifier", "no")
    for number in range(8):
        services.certificate_request([NAME], owner=f"acc_{number}")
        steps()
        services.certificate_remove([NAME])
        steps()
    assert OrderAttempt.objects.filter(name=NAME).count() == 5


def test_another_owner_does_not_wait_for_what_was_refused_to_the_former(fake: FakeCa) -> None:
    fake.answers["/order"] = fake.problem(403, "rejectedIdentifier", "not yours")
    services.certificate_request([NAME], owner=GREEDY)
    steps()
    Certificate.objects.update(failures=9, next_attempt_at=timezone.now() + timedelta(hours=6))
    services.certificate_request([NAME], owner=GREEDY)
    assert due_ids(10) == []
    services.certificate_request([NAME], owner=OTHER)
    row = Certificate.objects.get()
    assert (row.owner, row.status, row.error, row.failures) == (OTHER, "pending", "", 0)
    steps()
    assert OrderAttempt.objects.filter(owner=OTHER).count() == 1


def test_a_certificate_and_an_order_under_way_go_over_to_another_owner(fake: FakeCa) -> None:
    served = certificate_make(NAME, owner=GREEDY)
    services.certificate_request([NAME], owner=OTHER)
    row = Certificate.objects.get()
    assert (row.owner, row.chain, row.status) == (OTHER, served.chain, "active")
    assert row.next_attempt_at == served.next_attempt_at


def test_a_renewal_is_not_forced_while_the_ca_limits_the_name(fake: FakeCa) -> None:
    fake.answers["/order"] = fake.problem(429, "rateLimited", "too many", Retry_After="7200")
    services.certificate_request([NAME])
    steps()
    with pytest.raises(RateLimited) as refused:
        services.certificate_renew([NAME])
    assert 7000 < int(refused.value.headers["Retry-After"]) <= 7201
    # A pause that a clock wrote which was a month ahead is none.
    Certificate.objects.update(limited_until=timezone.now() + timedelta(days=30))
    services.certificate_renew([NAME])
    assert due_ids(10)


@pytest.mark.parametrize(
    "value", ["99999999999999", "-1", "1e9", "Mon, 01 Jan 2001 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "soon"]
)
def test_a_strange_retry_after_neither_stops_a_name_for_long_nor_is_it_asked_at_once(fake: FakeCa, value: str) -> None:
    fake.answers["/order"] = fake.problem(429, "rateLimited", "too many", Retry_After=value)
    services.certificate_request([NAME])
    steps()
    pause = Certificate.objects.get().next_attempt_at - timezone.now()
    assert timedelta(seconds=50) < pause <= timedelta(days=1)


def test_a_changed_contact_is_sent_once(fake: FakeCa, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.answers["/order"] = fake.problem(403, "rejectedIdentifier", "no")
    fake.answers["/account/1"] = fake.json(200, {"status": "valid"})
    services.certificate_request([NAME])
    steps()
    assert "/account/1" not in fake.asked
    for contact in ("new@example.org", "new@example.org", "", ""):
        settings_with(monkeypatch, acme_contact=contact)
        services.certificate_renew([NAME])
        steps()
    updates = [body["contact"] for path, body in fake.sent if path == "/account/1"]
    assert updates == [["mailto:new@example.org"], []]
    assert AcmeAccount.objects.get().contact == ""


def test_a_contact_that_the_ca_refuses_holds_up_no_order(fake: FakeCa, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.answers["/order"] = fake.problem(403, "rejectedIdentifier", "no")
    services.certificate_request([NAME])
    steps()
    fake.answers["/account/1"] = fake.problem(400, "invalidContact", "no such domain")
    settings_with(monkeypatch, acme_contact="new@example.invalid")
    for _ in range(2):
        services.certificate_renew([NAME])
        steps()
    assert fake.asked.count("/account/1") == 1
    assert OrderAttempt.objects.count() == 3


def test_an_account_that_was_there_is_given_the_contact(fake: FakeCa, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process died between the CA's answer and the commit; the setting was changed since."""
    settings_with(monkeypatch, acme_contact="new@example.org")
    fake.answers["/account"] = fake.json(200, {"status": "valid"}, Location=f"{fake.base}/account/1")
    fake.answers["/account/1"] = fake.json(200, {"status": "valid"})
    services.certificate_request([NAME])
    steps()
    assert [body["contact"] for path, body in fake.sent if path == "/account/1"] == [["mailto:new@example.org"]]
    assert AcmeAccount.objects.get().contact == "new@example.org"
