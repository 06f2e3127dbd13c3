"""Chains that no CA should send: of another time, of a form that the library does not know."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from certificates import orders, services
from certificates.keys import ChainInvalid, check_chain, new_key
from certificates.leases import due_ids
from certificates.models import Certificate, OrderAttempt
from certificates.steps import certificate_step
from tests.certificates.fake_ca import FakeCa, open_fake_ca
from tests.certificates.pebble import settings_with
from tests.certificates.rows import certificate_pem

NAME = "a.example.org"
KEY = new_key()
P256 = bytes.fromhex("06082a8648ce3d030107")


def chain_of(begin: timedelta, end: timedelta) -> str:
    """Its times are as long from now."""
    now = datetime.now(UTC).replace(microsecond=0)
    return certificate_pem(NAME, KEY, now + begin, now + end)


def changed(old: bytes, new: bytes) -> str:
    der = ssl.PEM_cert_to_DER_cert(chain_of(timedelta(days=-1), timedelta(days=89)))
    assert der.count(old)
    return ssl.DER_cert_to_PEM_cert(der.replace(old, new))


@pytest.fixture
def issuing(announced: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCa]:
    """A CA whose orders are valid at once; their key is KEY."""
    monkeypatch.setattr(orders, "new_key", lambda: KEY)
    with open_fake_ca() as made:
        settings_with(monkeypatch, acme_directory=made.directory)
        order = {"status": "valid", "certificate": f"{made.base}/chain"}
        made.answers["/order"] = made.json(201, order, Location=f"{made.base}/order/1")
        yield made


def step_with(ca: FakeCa, chain: str) -> Certificate:
    ca.answers["/chain"] = (200, {}, chain.encode())
    services.certificate_request([NAME])
    assert certificate_step(Certificate.objects.get().pk)
    return Certificate.objects.get()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("old", "new"),
    [(P256, P256[:-1] + b"\x63"), (bytes.fromhex("a003020102"), bytes.fromhex("a003020109"))],
    ids=["an unknown curve", "version 10"],
)
def test_a_certificate_that_the_library_does_not_know_ends_the_order_with_a_sentence(
    issuing: FakeCa, old: bytes, new: bytes
) -> None:
    row = step_with(issuing, changed(old, new))
    assert (row.status, row.order_key, row.claim) == ("failed", None, "")
    assert row.error == "The CA sent a certificate that is not valid for this name."
    assert row.next_attempt_at > timezone.now()


def test_a_certificate_of_a_time_to_come_is_not_served() -> None:
    now = timezone.now()
    with pytest.raises(ChainInvalid):
        check_chain(chain_of(timedelta(days=2), timedelta(days=90)), NAME, KEY, now)
    # The clock of this host may be behind.
    assert check_chain(chain_of(timedelta(hours=22), timedelta(days=90)), NAME, KEY, now)


@pytest.mark.django_db
def test_a_certificate_that_began_long_ago_is_not_renewed_at_once(issuing: FakeCa) -> None:
    row = step_with(issuing, chain_of(timedelta(days=-365), timedelta(days=9)))
    assert row.status == "active"
    assert due_ids(10) == []
    assert row.next_attempt_at - timezone.now() > timedelta(days=5)
    assert OrderAttempt.objects.count() == 1
