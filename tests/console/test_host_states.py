"""Actions of staff on the state of a host: each with a reason and an audit entry."""

from __future__ import annotations

import pytest
from django.test import Client

from staff.models import StaffEntry
from tests.callers import Caller
from tests.staff.pages import confirm
from tests.workspaces.rows import end_leases, make_host, make_workspace
from vmbackend.models import Host
from workspaces.host.host_sweep import sweep_hosts
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db
HOST = "vmbackend/host"
WHY = "The rack is moved."


def state_after(staff: Client, action: str, **fields: str) -> str:
    confirm(staff, HOST, action, Host.objects.get().pk, **fields)
    return Host.objects.get().state


def test_each_action_takes_a_reason_and_leaves_an_entry(staff: Client) -> None:
    make_host("one")
    for action, state in (("drain", "draining"), ("maintenance", "maintenance"), ("activate", "active")):
        before = Host.objects.get().state
        assert state_after(staff, action) == before, "without a reason"
        assert state_after(staff, action, reason=WHY) == state
        entry = StaffEntry.objects.filter(object_type="vmbackend.host", outcome="done").latest("id")
        assert (entry.action, entry.reason) == (f"host.{action}", WHY)


def test_a_host_is_given_up_by_its_name_once_it_is_silent(staff: Client, api: Caller) -> None:
    host = make_host("one")
    row = make_workspace(api.account, host=host)
    confirm(staff, HOST, "give_up", host.pk, reason=WHY, confirm="one")
    assert Host.objects.get().state == "active"
    assert StaffEntry.objects.filter(action="host.give_up", outcome="refused").exists()
    end_leases()
    assert state_after(staff, "give_up", reason=WHY, confirm="two") == "active"
    assert state_after(staff, "give_up", reason=WHY, confirm="one") == "gone"
    sweep_hosts()
    assert Workspace.objects.get(pk=row.pk).status == "lost"
    assert state_after(staff, "drain", reason=WHY) == "gone"
    assert state_after(staff, "activate", reason=WHY) == "active"


def test_the_page_shows_state_and_lease_and_what_may_be_done(staff: Client) -> None:
    host = make_host("one")
    page = staff.get(f"/admin/{HOST}/{host.pk}/change/").content.decode()
    for words in ("active since", "Lease until", "Drain", "Maintenance"):
        assert words in page
    assert "Give up" not in page
    end_leases()
    page = staff.get(f"/admin/{HOST}/{host.pk}/change/").content.decode()
    for words in ("unreachable since", "Give up"):
        assert words in page
