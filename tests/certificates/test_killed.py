"""The process that orders certificates is killed at each statement: its successor carries the same order on."""

from __future__ import annotations

from itertools import count

import pytest
from django.conf import settings
from django.utils import timezone

from certificates import services
from certificates.keys import check_chain
from certificates.leases import LEASE, claim_lease
from certificates.models import AcmeAccount, Certificate, OrderAttempt
from common.work.leases import ClaimLost
from edge.challenges import challenges_folder
from tests.certificates.killed import order_to_end
from tests.certificates.pebble import Pebble
from tests.killed_process import killed_process

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.campaign
def test_the_process_may_be_killed_at_any_statement(ca: Pebble, announced: list[tuple[str, bool]]) -> None:
    keys = set()
    with killed_process() as process:
        for statement in count(1):
            name = f"n{statement}.example.org"
            orders, issued = ca.orders(), ca.issued()
            services.certificate_request([name])
            killed = process.killed_at(statement, "tests.certificates.killed.order_to_end")
            stored = Certificate.objects.get(name=name).order_key
            # Its lease ends some time after it.
            Certificate.objects.filter(lease_until__isnull=False).update(lease_until=timezone.now())
            order_to_end()
            row = Certificate.objects.get(name=name)
            assert (row.status, row.error) == ("active", ""), statement
            assert (row.order_key, row.announced) == (None, True)
            check_chain(row.chain, name, row.key, timezone.now())
            assert stored in (None, row.key)
            assert (ca.orders() - orders, ca.issued() - issued) == (1, 1)
            keys.add(row.key)
            Certificate.objects.all().delete()
            OrderAttempt.objects.all().delete()
            if not killed:
                break
    assert statement > 20
    assert len(keys) == statement
    assert AcmeAccount.objects.count() == 1
    assert list(challenges_folder(settings.STATE).iterdir()) == []


def test_an_order_whose_address_was_not_stored_is_found_again(ca: Pebble, announced: list[tuple[str, bool]]) -> None:
    services.certificate_request(["found.example.org"])
    orders = ca.orders()
    with killed_process() as process:
        assert process.killed_at(10_000, "tests.certificates.killed.die_before_the_address_is_stored")
    stored = Certificate.objects.get()
    assert (bool(stored.order_key), stored.order_url) == (True, "")
    Certificate.objects.update(lease_until=timezone.now())
    order_to_end()
    row = Certificate.objects.get()
    assert (row.status, row.key) == ("active", stored.order_key)
    assert ca.orders() - orders == OrderAttempt.objects.count() == 1


def test_a_step_that_lost_its_lease_writes_nothing(ca: Pebble, announced: list[tuple[str, bool]]) -> None:
    services.certificate_request(["lost.example.org"])
    row = claim_lease(Certificate.objects.get().pk)
    assert row is not None
    assert claim_lease(row.pk) is None
    services.certificate_remove(["lost.example.org"])
    with pytest.raises(ClaimLost):
        LEASE.write_row(row, error="late")
    order_to_end()
    assert not Certificate.objects.exists()
