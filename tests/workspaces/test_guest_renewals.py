"""Changes of SSH access and workloads that a running guest has missed are applied, however many and by whom."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.callers import Caller
from tests.threads import wait_until
from tests.workspaces.rows import make_workspace
from vmbackend.models import Host
from workspaces import guest_changes, ssh
from workspaces.errors import GuestUnreachable
from workspaces.host import guest_renewals
from workspaces.host.guest_renewals import GuestRenewals, renew_guest
from workspaces.models import Activity, Workspace
from workspaces.states import Status
from workspaces.workload_changes import services as workloads
from workspaces.workload_changes.services import ALL, MAX_STALE

pytestmark = pytest.mark.django_db(transaction=True)
WEB = {"name": "web", "cmd": ["web"]}


class Guest:
    """Has what it gets, unless it does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers, self.calls = True, 0
        self.workloads: dict[str, Any] = {}
        self.keys: dict[str, list[str]] = {}
        monkeypatch.setattr(ssh, "configure_ssh", self._set_keys)
        monkeypatch.setattr(workloads, "configure_workload", self._set_workload)
        monkeypatch.setattr(workloads, "guest_workload_names", lambda _: self._called() or list(self.workloads))

    def _called(self) -> None:
        self.calls += 1
        if not self.answers:
            raise GuestUnreachable

    def _set_keys(self, row: Workspace) -> None:
        self._called()
        self.keys[row.pk] = list(row.ssh_keys)

    def _set_workload(self, row: Workspace, name: str, wanted: Any) -> None:
        self._called()
        if wanted is None:
            self.workloads.pop(name, None)
        else:
            self.workloads[name] = tuple(wanted.cmd)


@pytest.fixture
def guest(monkeypatch: pytest.MonkeyPatch) -> Guest:
    return Guest(monkeypatch)


def now(row: Workspace) -> Workspace:
    return Workspace.objects.get(pk=row.pk)


def add_and_remove(row: Workspace, count: int) -> None:
    for number in range(count):
        item = {"name": f"w{number}", "cmd": ["x"]}
        workloads.workload_add(workspace=now(row), actor="owner", item=item)
        workloads.workload_remove(workspace=now(row), actor="owner", name=item["name"])


def run_in(row: Workspace, status: Status) -> Workspace:
    Workspace.objects.filter(pk=row.pk).update(status=status, ready=status == Status.RUNNING)
    return now(row)


def test_any_number_of_changes_costs_a_guest_that_does_not_answer_one_call_of_each_kind(
    api: Caller, guest: Guest
) -> None:
    row = make_workspace(api.account, status=Status.PAUSED, ssh_stale=True)
    add_and_remove(row, MAX_STALE + 10)
    assert now(row).stale_workloads == [ALL]
    guest.answers = False
    renew_guest(run_in(row, Status.RUNNING))
    assert guest.calls == 2
    events = Activity.objects.filter(workspace_id=row.pk, action__endswith="_not_changed")
    assert sorted(events.values_list("action", flat=True)) == ["ssh_not_changed", "workload_not_changed"]
    assert (now(row).stale_workloads, now(row).ssh_stale) == ([ALL], True)


def test_with_too_many_changes_the_guest_gets_all_that_is_saved_and_loses_the_rest(api: Caller, guest: Guest) -> None:
    row = make_workspace(api.account, status=Status.PAUSED, workloads=[WEB])
    add_and_remove(row, MAX_STALE + 1)
    guest.workloads = {"w3": ("x",), "web": ("old",), "of the guest": ("y",)}
    renew_guest(run_in(row, Status.RUNNING))
    assert guest.workloads == {"web": ("web",)}
    assert now(row).stale_workloads == []


def test_renewals_end_with_their_time(api: Caller, guest: Guest) -> None:
    row = make_workspace(api.account, status=Status.RUNNING, ssh_stale=True, stale_workloads=["a", "b"])
    assert "waits" in ssh.renew_access(now(row), time.monotonic())
    assert "no time" in workloads.renew_workloads(now(row), time.monotonic())
    assert guest.calls == 0
    assert (now(row).ssh_stale, now(row).stale_workloads) == (True, ["a", "b"])
    assert ssh.renew_access(now(row), math.inf) == workloads.renew_workloads(now(row), math.inf) == ""
    assert (now(row).ssh_stale, now(row).stale_workloads) == (False, [])


def test_a_renewal_leaves_the_status_of_the_instance_to_its_operation(api: Caller, guest: Guest) -> None:
    row = make_workspace(api.account, status=Status.RESUMING, ssh_stale=True, stale_workloads=["a"])
    held = now(row)
    run_in(row, Status.RUNNING)
    renew_guest(held)
    assert held.status == Status.RESUMING
    assert now(row).ssh_stale is False


@pytest.fixture
def renewals(host: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuestRenewals]:
    monkeypatch.setattr(guest_renewals, "SETTLE_SECONDS", 0.0)
    made = GuestRenewals(host)
    yield made
    made.stop()


@pytest.fixture
def host(api: Caller) -> str:
    return str(Host.objects.get_or_create(name="renewals", defaults={"subnet": "10.9.0.0/24"})[0].pk)


def settled(renewals: GuestRenewals) -> Callable[[], bool]:
    return lambda: not renewals._pending


def test_a_guest_that_runs_and_has_missed_a_change_gets_it(
    api: Caller, guest: Guest, renewals: GuestRenewals, host: str
) -> None:
    rows = [
        make_workspace(api.account, host_id=host, ssh_stale=True, ssh_keys=["ssh-ed25519 AAAA"]),
        make_workspace(api.account, host_id=host, stale_workloads=["web"], workloads=[WEB]),
    ]
    others = [
        make_workspace(api.account, host_id=host, status=Status.PAUSED, ssh_stale=True),
        make_workspace(api.account, ssh_stale=True),
    ]
    assert renewals.begin() == 2
    wait_until(settled(renewals))
    assert [(now(row).ssh_stale, now(row).stale_workloads) for row in rows] == [(False, [])] * 2
    assert guest.keys == {rows[0].pk: ["ssh-ed25519 AAAA"]}
    assert guest.workloads == {"web": ("web",)}
    assert [now(row).ssh_stale for row in others] == [True, True]
    assert renewals.begin() == 0


def test_a_guest_that_does_not_answer_is_asked_less_and_less_often(
    api: Caller, guest: Guest, renewals: GuestRenewals, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_workspace(api.account, host_id=host, ssh_stale=True)
    guest.answers = False
    clock = [1000.0]
    for module in (guest_renewals, guest_changes, workloads):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    asked = []
    for _ in range(60):
        if renewals.begin():
            asked.append(clock[0] - 1000)
            wait_until(settled(renewals))
        clock[0] += 60
    assert asked == [0, 60, 180, 420, 900, 1860]
    guest.answers = True
    clock[0] += 3600
    assert renewals.begin() == 1
    wait_until(lambda: not now(row).ssh_stale)


def test_what_a_request_in_flight_may_still_change_is_not_looked_at_yet(
    api: Caller, guest: Guest, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(guest_renewals, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    renewals = GuestRenewals(host)
    monkeypatch.setattr(GuestRenewals, "_start_threads", lambda _: None)
    row = make_workspace(api.account, host_id=host, ssh_stale=True)
    begun = []
    for stale in (True, True, False, True, True):
        Workspace.objects.filter(pk=row.pk).update(ssh_stale=stale)
        begun.append(renewals.begin())
        clock[0] += guest_renewals.SETTLE_SECONDS
    assert begun == [0, 1, 0, 0, 0]
    assert guest.calls == 0


def test_guests_of_one_account_do_not_delay_those_of_another(
    api: Caller, stranger: Caller, renewals: GuestRenewals, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        make_workspace(api.account, host_id=host, ssh_stale=True)
    late = make_workspace(stranger.account, host_id=host, ssh_stale=True)
    monkeypatch.setattr(GuestRenewals, "_start_threads", lambda _: None)  # none is ever answered
    assert renewals.begin() == guest_renewals.MOST_PENDING
    assert late.pk in renewals._pending
    assert renewals.begin() == 0
