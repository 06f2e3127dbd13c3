"""Orders at a real CA: a name gets a certificate, renews it, gives it up; limits, DNS, what staff see."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.utils import timezone

from certificates import doctor, hooks, orders, services, tokens
from certificates.ca_account import CERTIFICATES_OFF
from certificates.errors import RenewalInProgress
from certificates.keys import check_chain
from certificates.leases import due_ids
from certificates.models import AcmeAccount, Certificate, OrderAttempt
from certificates.selectors import certificate_states, served_certificate
from certificates.steps import certificate_step
from common.errors import RateLimited
from common.redis import redis_client
from edge.challenges import challenges_folder
from tests.certificates.pebble import Pebble, settings_with
from tests.certificates.rows import certificate_make, self_signed
from tests.staff.pages import confirm

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "www.example.org"
Carry = Callable[..., Certificate]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "_SHORTEST_POLL", 0.1)


def state_of(name: str = NAME) -> Any:
    return certificate_states([name])[name]


def move_clock(monkeypatch: pytest.MonkeyPatch, **by: int) -> None:
    real = datetime.now
    monkeypatch.setattr(timezone, "now", lambda: real(tz=timezone.get_default_timezone()) + timedelta(**by))


def test_a_requested_name_gets_a_certificate(ca: Pebble, carry_on: Carry, announced: list[tuple[str, bool]]) -> None:
    services.certificate_request([NAME])
    assert state_of().status == "pending"
    row = carry_on(NAME)
    assert (state_of().status, state_of().expires_at, state_of().error) == ("active", row.expires_at, "")
    check_chain(row.chain, NAME, row.key, timezone.now())
    assert row.chain.count("BEGIN CERTIFICATE") == 2
    assert announced == [(NAME, True)]
    assert served_certificate(NAME) == row.chain + row.key
    assert list(challenges_folder(settings.STATE).iterdir()) == []


def test_a_certificate_is_renewed_when_two_thirds_of_its_time_are_over(
    ca: Pebble, carry_on: Carry, monkeypatch: pytest.MonkeyPatch, announced: list[tuple[str, bool]]
) -> None:
    services.certificate_request([NAME])
    first = carry_on(NAME)
    move_clock(monkeypatch, days=59)
    assert due_ids(10) == []
    move_clock(monkeypatch, days=61)
    # It cannot: the CA is down. What is served stays.
    settings_with(monkeypatch, acme_directory="https://127.0.0.1:9/dir")
    certificate_step(first.pk)
    assert (state_of().status, state_of().error[:31]) == ("active", "The CA could not be reached. Th")
    assert served_certificate(NAME) == first.chain + first.key
    settings_with(monkeypatch, acme_directory=ca.directory)
    Certificate.objects.update(due_at=timezone.now(), next_attempt_at=timezone.now())
    second = carry_on(NAME, lambda row: row.chain != first.chain)
    assert second.key != first.key
    assert (state_of().status, state_of().error) == ("active", "")
    assert served_certificate(NAME) == second.chain + second.key
    assert announced == [(NAME, True)]


def test_a_certificate_that_was_not_renewed_expires(announced: list[tuple[str, bool]]) -> None:
    row = certificate_make(NAME)
    expired = timezone.now()
    Certificate.objects.update(expires_at=expired, due_at=expired)
    assert state_of().status == "expired"
    assert served_certificate(NAME) == ""
    certificate_step(row.pk)
    assert announced == [(NAME, False)]
    assert (Certificate.objects.get().status, state_of().status) == ("expired", "expired")


def test_a_forced_renewal_is_one_order_at_a_time(ca: Pebble, carry_on: Carry) -> None:
    services.certificate_request([NAME])
    first = carry_on(NAME)
    services.certificate_renew([NAME])
    assert certificate_step(first.pk)
    with pytest.raises(RenewalInProgress):
        services.certificate_renew([NAME])
    assert served_certificate(NAME) == first.chain + first.key
    second = carry_on(NAME, lambda row: row.chain != first.chain)
    assert served_certificate(NAME) == second.chain + second.key
    for _ in range(3):
        OrderAttempt.objects.create(name=NAME, began_at=timezone.now())
    with pytest.raises(RateLimited) as refused:
        services.certificate_renew([NAME])
    assert 3500 < int(refused.value.headers["Retry-After"]) <= 3600


def test_a_removed_name_is_served_no_more_and_its_order_is_given_up(
    ca: Pebble, carry_on: Carry, announced: list[tuple[str, bool]]
) -> None:
    services.certificate_request([NAME])
    row = carry_on(NAME, lambda row: bool(row.challenge_token))
    assert (challenges_folder(settings.STATE) / row.challenge_token).exists()
    services.certificate_remove([NAME])
    stored = Certificate.objects.get()
    assert (stored.key, stored.order_key, served_certificate(NAME), state_of().status) == (None, None, "", "none")
    certificate_step(row.pk)
    assert not Certificate.objects.exists()
    assert list(challenges_folder(settings.STATE).iterdir()) == []
    assert announced[-1] == (NAME, False)


def test_a_name_that_comes_back_while_it_is_removed_stays(announced: list[tuple[str, bool]]) -> None:
    row = certificate_make(NAME)
    services.certificate_remove([NAME])
    services.certificate_request([NAME])
    assert state_of().status == "none"
    certificate_step(row.pk)
    assert announced == [(NAME, False)]
    assert Certificate.objects.get().wanted


def test_the_ca_is_not_asked_for_a_name_that_does_not_lead_here(
    ca: Pebble, carry_on: Carry, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = ca.orders()
    sentences: list[str | None] = [f"{NAME} has no address."]
    monkeypatch.setattr(hooks.dns_points_here, "_handlers", [lambda name: sentences[0]])
    services.certificate_request([NAME])
    row = carry_on(NAME)
    assert (state_of().status, state_of().error) == ("pending", f"{NAME} has no address.")
    assert (ca.orders(), OrderAttempt.objects.count(), row.failures) == (placed, 0, 1)
    sentences[0] = None
    services.certificate_renew([NAME])
    assert carry_on(NAME).failures == 0
    assert state_of().error == ""


def test_the_refusal_of_the_ca_is_shown_and_attempts_are_limited(
    ca: Pebble, carry_on: Carry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "write_token", lambda token, content: None)
    services.certificate_request([NAME])
    row = carry_on(NAME)
    assert state_of().status == "failed"
    assert "404" in state_of().error
    assert row.order_key is None
    assert row.next_attempt_at > timezone.now() + timedelta(seconds=50)
    for _ in range(4):
        OrderAttempt.objects.create(name=NAME, began_at=timezone.now())
    placed = ca.orders()
    Certificate.objects.update(due_at=timezone.now(), next_attempt_at=timezone.now())
    row = carry_on(NAME)
    assert ca.orders() == placed
    assert row.error.startswith("The limit of orders is reached; the next one is placed after 20")
    assert row.next_attempt_at > timezone.now() + timedelta(minutes=59)


def test_all_names_together_have_a_limit(ca: Pebble, carry_on: Carry, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_with(monkeypatch, acme_orders_per_hour=1)
    services.certificate_request([NAME, "two.example.org"])
    for name in (NAME, "two.example.org"):
        carry_on(name)
    states = certificate_states([NAME, "two.example.org"])
    assert sorted(state.status for state in states.values()) == ["active", "pending"]
    assert OrderAttempt.objects.count() == 1


def test_an_order_of_a_former_ca_is_forgotten(ca: Pebble, carry_on: Carry) -> None:
    former = AcmeAccount.objects.create(directory="https://former.example/dir", key="key")
    services.certificate_request([NAME])
    Certificate.objects.update(
        order_key="old", order_url="https://former.example/order/1", order_began_at=timezone.now(), account=former
    )
    assert carry_on(NAME).issued_by == ca.directory


def test_without_a_directory_certificates_are_off(announced: list[tuple[str, bool]]) -> None:
    services.certificate_request([NAME])
    assert (state_of().status, state_of().error) == ("none", CERTIFICATES_OFF)
    certificate_step(Certificate.objects.get().pk)
    assert Certificate.objects.get().due_at > timezone.now()


def test_no_key_is_in_the_database_the_log_redis_or_the_admin(
    ca: Pebble, carry_on: Carry, staff: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    services.certificate_request([NAME])
    row = carry_on(NAME)
    account = AcmeAccount.objects.get()
    secrets = [line for pem in (row.key, account.key) for line in pem.splitlines()[1:-1]]
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM certificates_certificate")
        stored = str(cursor.fetchall())
        cursor.execute("SELECT * FROM certificates_acmeaccount")
        stored += str(cursor.fetchall())
    client = redis_client()
    kept = str([(key, client.dump(key)) for key in client.keys("*")])
    pages = [
        staff.get(path).content.decode()
        for path in (
            "/admin/certificates/certificate/",
            f"/admin/certificates/certificate/{row.pk}/change/",
            f"/admin/certificates/acmeaccount/{account.pk}/change/",
        )
    ]
    assert all(NAME in page or ca.directory in page for page in pages)
    for text in (stored, kept, caplog.text, *pages):
        assert "PRIVATE KEY" not in text
        assert not any(secret in text for secret in secrets)


def test_staff_renew_a_certificate(staff: Client) -> None:
    row = certificate_make(NAME)
    confirm(staff, "certificates/certificate", "renew", row.pk)
    assert due_ids(10) == [row.pk]


def test_a_lease_of_a_clock_that_was_set_back_is_over() -> None:
    row = certificate_make(NAME, due_at=timezone.now())
    Certificate.objects.update(claim="x", lease_until=timezone.now() + timedelta(seconds=60))
    assert due_ids(10) == []
    Certificate.objects.update(lease_until=timezone.now() + timedelta(hours=1))
    assert due_ids(10) == [row.pk]
    assert self_signed(NAME)[0] == row.chain


def test_the_doctor_counts_names_and_finds_those_that_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    assert next(doctor.doctor_lines())[1:3] == (True, "off: no PLATFORM_ACME_DIRECTORY")
    settings_with(monkeypatch, acme_directory="https://ca.example/dir")
    assert next(doctor.doctor_lines())[1:3] == (False, "no CA can fetch its tokens")
    settings_with(monkeypatch, domains_http_port=80)
    row = certificate_make(NAME)
    services.certificate_request(["waits.example.org"])
    assert next(doctor.doctor_lines())[1:3] == (True, "1 active, 1 wait, 0 failed, 0 expire within a week")
    Certificate.objects.filter(pk=row.pk).update(expires_at=timezone.now() + timedelta(days=6))
    assert next(doctor.doctor_lines())[1] is False
