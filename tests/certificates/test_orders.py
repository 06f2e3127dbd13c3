"""Orders at a real CA: a name gets a certificate, keeps it, renews it, gives it up."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from certificates import services
from certificates.keys import chain_check
from certificates.models import Certificate
from certificates.selectors import certificate_states, served_certificate
from django.utils import timezone
from tests.certificates.pebble import Pebble

pytestmark = pytest.mark.django_db(transaction=True)
NAME = "www.example.org"
Carry = Callable[..., Certificate]


def test_a_requested_name_gets_a_certificate(ca: Pebble, carry_on: Carry, announced: list[tuple[str, bool]]) -> None:
    services.certificate_request([NAME])
    assert certificate_states([NAME])[NAME].status == "pending"
    row = carry_on(NAME)
    state = certificate_states([NAME])[NAME]
    assert (state.status, state.expires_at, state.error) == ("active", row.expires_at, "")
    chain_check(row.chain, NAME, row.key, timezone.now())
    assert row.chain.count("BEGIN CERTIFICATE") == 2
    assert announced == [(NAME, True)]
    assert served_certificate(NAME) == row.chain + row.key
