"""The clock of the host is wrong for a time, and then set: nothing is given up, and no CA is asked more than before."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from certificates import services
from certificates.leases import claim_lease, due_ids, limit_waits
from certificates.models import Certificate
from certificates.selectors import served_certificate
from certificates.steps import certificate_step
from tests.certificates.fake_ca import open_fake_ca
from tests.certificates.pebble import settings_with
from tests.certificates.rows import certificate_make
from tests.free_ports import free_port

pytestmark = pytest.mark.django_db
NAME = "a.example.org"
MONTH = timedelta(days=31)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call it to set the clock ahead, or (0) right again."""
    real = timezone.now

    def set_clock(by: timedelta = timedelta(0)) -> None:
        monkeypatch.setattr(timezone, "now", lambda: real() + by)

    return set_clock


def step() -> Certificate:
    certificate_step(Certificate.objects.get(name=NAME).pk)
    return Certificate.objects.get(name=NAME)


def test_a_pause_of_a_clock_that_was_ahead_ends_when_it_is_set(
    announced: Any, ahead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings_with(monkeypatch, acme_directory=f"https://127.0.0.1:{free_port()}/dir")
    ahead(MONTH)
    services.certificate_request([NAME])
    assert step().error.startswith("The CA could not be reached.")
    ahead()
    assert due_ids(10) == []
    assert limit_waits() == 1
    assert due_ids(10) == [Certificate.objects.get().pk]
    # And a request that no step has seen.
    ahead(MONTH)
    services.certificate_request(["b.example.org"])
    ahead()
    assert limit_waits() == 1
    assert len(due_ids(10)) == 2
    assert limit_waits() == 0


def test_a_clock_that_is_right_changes_nothing(announced: Any, ahead: Any) -> None:
    services.certificate_request([NAME])
    certificate_make("served.example.org")
    claim_lease(Certificate.objects.get(name=NAME).pk)
    before = list(Certificate.objects.values("name", "due_at", "next_attempt_at"))
    assert limit_waits() == 0
    assert list(Certificate.objects.values("name", "due_at", "next_attempt_at")) == before


def test_a_certificate_that_only_a_wrong_clock_let_expire_is_served_again(announced: Any, ahead: Any) -> None:
    row = certificate_make(NAME)
    assert served_certificate(NAME)
    ahead(4 * MONTH)
    assert step().status == "expired"
    assert served_certificate(NAME) == ""
    ahead()
    assert limit_waits() == 1
    assert step().status == "active"
    assert served_certificate(NAME) == row.chain + row.key
    assert announced == [(NAME, False), (NAME, True)]


def test_a_renewal_is_not_brought_forward(announced: Any) -> None:
    """It lies weeks ahead, as its certificate's time gives it."""
    row = certificate_make(NAME)
    assert limit_waits() == 0
    assert not certificate_step(row.pk)
    assert Certificate.objects.get().due_at == row.due_at


def test_an_order_is_not_asked_for_each_second_after_the_clock_was_set_back(
    announced: Any, ahead: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_fake_ca() as ca:
        settings_with(monkeypatch, acme_directory=ca.directory)
        ca.answers["/order"] = ca.json(201, {"status": "processing"}, Location=f"{ca.base}/order/1")
        ca.answers["/order/1"] = ca.json(200, {"status": "processing"})
        ahead(MONTH)
        services.certificate_request([NAME])
        assert step().order_url
        ahead()
        limit_waits()
        step()
        ahead(timedelta(hours=1))
        row = step()
    assert row.error == "The certificate authority has not finished the order yet."
    assert row.next_attempt_at - timezone.now() > timedelta(minutes=5)
