"""The state of a host: a lease by the database's clock, and the intent of staff."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now
from django.utils import timezone

from tests.callers import Caller
from tests.threads import run_at_once
from tests.workspaces.rows import end_leases, make_host, make_workspace, renew_leases
from vmbackend import services
from vmbackend.errors import HostIsAlive, HostStateRefused
from vmbackend.fake.store import FakeStore
from vmbackend.host_states import ALLOWED, LEASE_FOR, HostState, host_answers, shown_since, shown_state, takes_new
from vmbackend.models import Host
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)


def report(folder: Path) -> Host:
    capacity = FakeStore(folder).capacity()
    known = {"host_id": services.find_host_id(name="one", claim="a"), "name": "one", "claim": "a"}
    services.record_host_seen(**known, subnet="10.200.0.0/20", capacity=capacity)
    return Host.objects.get()


@pytest.mark.parametrize("off_by", [timedelta(minutes=-5), timedelta(minutes=5)])
def test_only_the_databases_clock_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, off_by: timedelta) -> None:
    real = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: real() + off_by)
    host = report(tmp_path)
    assert (host.has_lease, host.shown_state, host.takes_new) == (True, "active", True)
    assert host.lease_until is not None
    assert timedelta() < host.lease_until - real() <= LEASE_FOR
    end_leases()
    host.refresh_from_db()
    assert (host.lease_until, host.shown_state, host.takes_new) == (None, "unreachable", False)
    assert timedelta() < real() - host.shown_since < timedelta(minutes=1)


def test_a_lease_of_a_clock_that_was_ahead_is_over() -> None:
    make_host("one")
    Host.objects.update(lease_until=Now() + timedelta(hours=1))
    assert Host.objects.get().shown_state == "unreachable"
    assert not Host.objects.filter(host_answers()).exists()


def test_a_renewal_keeps_the_beginning_and_a_gap_sets_it_anew(tmp_path: Path) -> None:
    first = report(tmp_path).lease_since
    assert report(tmp_path).lease_since == first
    end_leases()
    back = report(tmp_path)
    assert back.lease_since is not None
    assert first is not None
    assert back.lease_since > first
    assert back.shown_since == back.lease_since


@pytest.mark.parametrize("state", HostState.values)
@pytest.mark.parametrize("silent", [False, True])
def test_a_row_and_a_query_say_the_same(api: Caller, state: str, silent: bool) -> None:
    host = make_host("one")
    Host.objects.update(state=state)
    if silent:
        end_leases()
    make_workspace(api.account, host=host)
    host.refresh_from_db()
    joined = Workspace.objects.select_related("host").get().host
    found = Workspace.objects.values_list(shown_state("host__"), shown_since("host__")).get()
    assert found == (host.shown_state, host.shown_since) == (joined.shown_state, joined.shown_since)
    assert Host.objects.filter(host_answers()).exists() == host.answers == joined.answers
    assert Host.objects.filter(takes_new()).exists() == host.takes_new == (state == "active" and not silent)


@pytest.mark.parametrize("before", HostState)
@pytest.mark.parametrize("to", HostState)
def test_staff_go_from_one_state_to_another_as_the_table_says(before: HostState, to: HostState) -> None:
    host = make_host("one")
    Host.objects.update(state=before)
    end_leases()
    if before in ALLOWED[to]:
        services.host_state_set(host_id=host.pk, to=to)
        assert (Host.objects.get().state, Host.objects.get().state_since > host.state_since) == (to, True)
    else:
        with pytest.raises(HostStateRefused):
            services.host_state_set(host_id=host.pk, to=to)
        assert Host.objects.get().state == before


def test_a_host_is_not_given_up_while_its_lease_stands(tmp_path: Path) -> None:
    host = report(tmp_path)
    with pytest.raises(HostIsAlive):
        services.host_state_set(host_id=host.pk, to=HostState.GONE)
    end_leases()
    services.host_state_set(host_id=host.pk, to=HostState.GONE)
    back = report(tmp_path)
    assert (back.state, back.has_lease, back.answers) == ("gone", True, False), "its report does not change the state"
    services.host_state_set(host_id=host.pk, to=HostState.ACTIVE)
    assert Host.objects.get().takes_new


def test_of_a_renewal_and_giving_up_at_once_one_is_first() -> None:
    host = make_host("one")
    end_leases()
    turns = [lambda: renew_leases(), lambda: services.host_state_set(host_id=host.pk, to=HostState.GONE)]
    outcomes = run_at_once(2, lambda number: turns[number]())
    assert "done" in outcomes
    assert Host.objects.get().state == ("gone" if outcomes == ["done", "done"] else "active")
