"""Addresses that a workspace gave up: nobody gets one while edges may have a route to it."""

from __future__ import annotations

import pytest
from django.db.models import F

from tests.callers import Caller
from tests.workspaces.rows import make_host, make_workspace
from vmbackend.models import Host
from workspaces.models import ReleasedAddress, Workspace
from workspaces.placement import LONGEST_HOLD, free_address
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_address_is_not_given_again_right_after_its_release(api: Caller) -> None:
    host, other = make_host(), make_host("other")
    Host.objects.filter(pk=host.pk).update(subnet="10.9.9.0/29")
    host.refresh_from_db()
    freed = [make_workspace(api.account, host=host, ip=f"10.9.9.{number}") for number in (2, 3, 4)]
    freed[0].delete()
    Workspace.objects.filter(pk=freed[1].pk).update(ip=None, status=Status.DESTROYED)
    Workspace.objects.filter(pk=freed[2].pk).update(host=other)
    assert {free_address(host) for _ in range(20)} == {"10.9.9.5", "10.9.9.6"}
    assert ReleasedAddress.objects.filter(host=host).count() == 3
    ReleasedAddress.objects.filter(ip="10.9.9.3").update(held_until=F("held_until") - LONGEST_HOLD)
    ReleasedAddress.objects.filter(ip="10.9.9.4").update(held_until=F("held_until") + 3 * LONGEST_HOLD)
    given = {free_address(host) for _ in range(60)}
    assert given == {"10.9.9.3", "10.9.9.4", "10.9.9.5", "10.9.9.6"}, "the clock may have been set back"
