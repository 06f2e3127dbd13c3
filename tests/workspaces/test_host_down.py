"""A host goes down, on purpose or not, and comes back: what runs again then."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.utils import timezone

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.rows import renew_leases
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable
from vmbackend.models import Host
from workspaces import power
from workspaces.host import process as vmhost_process
from workspaces.host.sweep import sweep_due
from workspaces.models import Workspace
from workspaces.models.workspace import RestartPolicy
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)

NO, ALWAYS = RestartPolicy.NO, RestartPolicy.ALWAYS
ON_FAILURE, UNLESS_STOPPED = RestartPolicy.ON_FAILURE, RestartPolicy.UNLESS_STOPPED


@pytest.fixture
def machine(api: Caller, vmhost: FakeHost) -> Callable[..., Workspace]:
    """A permanent workspace with a main process."""
    return fault_cases.permanent_machines(vmhost, api.account, cmd=["serve"])


def restarted(host: FakeHost, row: Workspace) -> Workspace:
    """The row after the sweep that its restart was due for."""
    Workspace.objects.filter(pk=row.pk, restart_due_at__isnull=False).update(restart_due_at=timezone.now())
    sweep_due()
    host.settle()
    row.refresh_from_db()
    return row


def host_goes_down(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """`stop_vms_on_down`, then the next start of vmhost."""
    monkeypatch.setattr(settings.ENV, "stop_vms_on_down", True)
    vmhost_process.close_host()
    host.start()


@pytest.mark.parametrize(
    ("policy", "comes_back"), [(NO, False), (ALWAYS, True), (UNLESS_STOPPED, True), (ON_FAILURE, False)]
)
@pytest.mark.parametrize("status", [Status.RUNNING, Status.PAUSED])
def test_what_the_hosts_going_down_stopped_comes_back_with_it(
    vmhost: FakeHost,
    machine: Callable[..., Workspace],
    monkeypatch: pytest.MonkeyPatch,
    status: Status,
    policy: RestartPolicy,
    comes_back: bool,
) -> None:
    row = machine(status, restart_policy=policy)
    host_goes_down(vmhost, monkeypatch)
    row.refresh_from_db()
    assert (row.status, row.last_exit_reason, row.user_requested_stop) == ("stopped", "host_down", False)
    assert vmhost.driver.state(row.pk) is MachineState.OFF
    assert (restarted(vmhost, row).status == "running") is comes_back


def test_a_death_while_the_host_goes_down_changes_nothing_of_that(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor may lose its patience between the machine's end and the row's."""
    row = machine(restart_policy=ALWAYS)
    shutdown = vmhost.driver.shutdown

    def and_dies(machine_id: str, grace: float) -> bool:
        shutdown(machine_id, grace)
        raise vmhost.begin_death()

    monkeypatch.setattr(vmhost.driver, "shutdown", and_dies)
    monkeypatch.setattr(settings.ENV, "stop_vms_on_down", True)
    with pytest.raises(type(vmhost.begin_death())):
        vmhost_process.close_host()
    vmhost.driver.__dict__.pop("_remove", None)
    monkeypatch.setattr(vmhost.driver, "shutdown", shutdown)
    vmhost.restart()
    assert restarted(vmhost, row).status == "running"


def test_a_machine_that_lost_its_name_stops_nothing_of_the_one_that_has_it(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = machine(restart_policy=ALWAYS)
    monkeypatch.setattr(settings.ENV, "stop_vms_on_down", True)
    monkeypatch.setattr(os, "kill", lambda *args: None)  # a heartbeat may come first
    Host.objects.update(claim="of another machine")
    renew_leases()
    vmhost_process.close_host()
    row.refresh_from_db()
    assert (row.status, row.last_exit_reason, row.started_at is not None) == ("running", "", True)
    assert vmhost.driver.state(row.pk) is MachineState.RUNNING
    Host.objects.update(claim=vmhost.runtime.claim)
    vmhost.start()


def test_machines_are_stopped_many_at_a_time(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may take its whole grace time, and what stops them has not much more. None holds a connection then."""
    rows = [machine() for _ in range(12)]
    together, shutdown = threading.Barrier(len(rows), timeout=60), vmhost.driver.shutdown

    def waiting(machine_id: str, grace: float) -> bool:
        assert connection.connection is None
        together.wait()
        return shutdown(machine_id, grace)

    monkeypatch.setattr(vmhost.driver, "shutdown", waiting)
    host_goes_down(vmhost, monkeypatch)
    assert {Workspace.objects.get(pk=row.pk).status for row in rows} == {"stopped"}


@pytest.mark.parametrize("failure", [BackendUnavailable("libvirt is away"), OperationalError("database is locked")])
def test_a_machine_that_cannot_be_stopped_with_its_host_is_logged_and_keeps_no_other(
    vmhost: FakeHost,
    machine: Callable[..., Workspace],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    failure: Exception,
) -> None:
    stays, other = machine(), machine()
    shutdown = vmhost.driver.shutdown

    def failing(machine_id: str, grace: float) -> bool:
        if machine_id == stays.pk:
            raise failure
        return shutdown(machine_id, grace)

    monkeypatch.setattr(vmhost.driver, "shutdown", failing)
    host_goes_down(vmhost, monkeypatch)
    other.refresh_from_db()
    assert (other.status, vmhost.driver.state(other.pk)) == ("stopped", MachineState.OFF)
    assert [record.getMessage() for record in caplog.records if "not stopped with its host" in record.getMessage()] == [
        f"{stays.pk} was not stopped with its host: {type(failure).__name__}: {failure}"
    ]


def test_what_ended_otherwise_since_does_not_come_back_with_the_host(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier going down of the host is no reason to start what a policy stopped later."""
    row = machine(restart_policy=UNLESS_STOPPED)
    host_goes_down(vmhost, monkeypatch)
    row = restarted(vmhost, row)
    power.workspace_stop(workspace=row, actor="idle policy", by_user=False)
    vmhost.settle()
    monkeypatch.setattr(settings.ENV, "stop_vms_on_down", False)
    vmhost.restart()
    assert restarted(vmhost, row).status == "stopped"


@pytest.mark.parametrize(
    ("policy", "of_running", "of_stopped"),
    [
        (NO, "stopped", "stopped"),
        (ALWAYS, "running", "running"),
        (UNLESS_STOPPED, "running", "stopped"),
        (ON_FAILURE, "running", "stopped"),
    ],
)
def test_a_host_that_was_rebooted(
    vmhost: FakeHost, machine: Callable[..., Workspace], policy: RestartPolicy, of_running: str, of_stopped: str
) -> None:
    """Its machines died with it. `always` also starts what its owner had stopped."""
    ran = machine(restart_policy=policy)
    stopped = machine(Status.STOPPED, restart_policy=policy, user_requested_stop=True)
    vmhost.runtime.stop()
    vmhost.driver.kill(ran.pk)
    vmhost.driver.set_boot_id(f"boot of {policy} at {timezone.now()}"[:40])
    vmhost.start()
    assert (restarted(vmhost, ran).status, restarted(vmhost, stopped).status) == (of_running, of_stopped)
    assert fault_cases.inconsistencies(vmhost, ran.pk, stopped.pk) == []


def test_a_restart_of_vmhost_alone_starts_nothing(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(Status.STOPPED, restart_policy=ALWAYS, user_requested_stop=True)
    vmhost.restart()
    assert restarted(vmhost, row).status == "stopped"
