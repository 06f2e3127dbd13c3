"""A claim that is renewed while its owner works."""

from __future__ import annotations

import pytest
from django.db import connection

from common.work.leases import ClaimLost
from common.work.renewals import claim_renewed
from tests.threads import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_claim_is_renewed_after_its_connection_was_lost() -> None:
    """As by a restart of the database."""
    renewed: list[bool] = []

    def renew() -> None:
        renewed.append(False)
        connection.ensure_connection()
        if len(renewed) == 1:
            connection.connection.close()
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        renewed[-1] = True

    with claim_renewed(renew, 0.01) as held:
        wait_until(lambda: renewed[:3] == [False, True, True])
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
