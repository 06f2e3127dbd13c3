"""A claim that is renewed while its owner works."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from common.work.leases import ClaimLost
from common.work.renewals import claim_renewed
from tests.threads import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_renewal_that_fails_is_tried_again() -> None:
    renewed: list[str] = []

    def renew() -> None:
        renewed.append("")
        if len(renewed) == 1:
            raise OperationalError("the server was restarted")

    with claim_renewed(renew, 0.01) as held:
        wait_until(lambda: len(renewed) >= 3)
        held.require_held()
    count = len(renewed)
    assert not held.lost.wait(0.05)
    assert len(renewed) == count, "its thread has ended with the block"


def test_a_claim_that_is_lost_is_noticed() -> None:
    def renew() -> None:
        raise ClaimLost

    with claim_renewed(renew, 0.01) as held:
        assert held.lost.wait(30)
        with pytest.raises(ClaimLost):
            held.require_held()
