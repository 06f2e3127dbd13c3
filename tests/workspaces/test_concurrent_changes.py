"""What changes between two looks: by the owner while an operation goes on, by an operation while reconcile looks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connections
from django.utils import timezone

from common.errors import DomainError
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.injected import Scene
from tests.workspaces.rows import make_host, make_workspace
from vmbackend.driver import MachineState
from vmbackend.models import Host
from workspaces import placement, power, ssh
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.host.reconcile import machines
from workspaces.host.sweep import expire_memory, expire_ttl, sweep_due
from workspaces.lifecycle import services as lifecycle
from workspaces.models import Activity, Workspace
from workspaces.models.workspace import Mode, RestartPolicy, TtlAction
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


@pytest.fixture
def machine(api: Caller, vmhost: FakeHost) -> Callable[..., Workspace]:
    return lambda status=Status.RUNNING, **fields: fault_cases.machine(
        vmhost, api.account, status, **{"mode": Mode.PERMANENT, **fields}
    )


@pytest.fixture
def temporary(machine: Callable[..., Workspace]) -> Callable[..., Workspace]:
    """A workspace whose TTL is over."""
    over = {"mode": Mode.TEMPORARY, "ttl_seconds": 3600, "ttl_expires_at": timezone.now() - timedelta(seconds=1)}
    return lambda status=Status.RUNNING, **fields: machine(status, **{**over, **fields})


def now(row: Workspace) -> Workspace:
    return Workspace.objects.get(pk=row.pk)


def change_ttl(row: Workspace, **fields: Any) -> None:
    lifecycle.change_ttl(workspace=now(row), actor="owner", **fields)


# The owner


def test_a_removal_asked_for_while_it_stops_is_not_forgotten(
    vmhost: FakeHost, temporary: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = temporary(ttl_expires_at=timezone.now() + HOUR)
    scene = Scene(vmhost, monkeypatch, "stop", "complete", row.pk)
    scene.before(lambda: change_ttl(row, ttl_action="remove"))
    power.workspace_stop(workspace=row, actor="owner")
    vmhost.settle()
    assert (now(row).status, now(row).ttl_expires_at) == ("stopped", row.ttl_expires_at)


def test_a_ttl_renewed_while_the_old_one_pauses_it_runs(
    vmhost: FakeHost, temporary: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = temporary(ttl_action=TtlAction.PAUSE)
    scene = Scene(vmhost, monkeypatch, "pause", "complete", row.pk)
    scene.before(lambda: change_ttl(row, ttl=60, ttl_action="remove"))
    sweep_due()
    vmhost.settle()
    ends = now(row).ttl_expires_at
    assert now(row).status == "paused"
    assert ends is not None
    assert ends > timezone.now()


def test_an_action_changed_in_the_last_moment_is_the_one_that_is_done(
    vmhost: FakeHost, temporary: Callable[..., Workspace]
) -> None:
    row = temporary(ttl_action=TtlAction.REMOVE)
    seen_by_the_sweep = now(row)
    lifecycle.change_ttl(workspace=row, actor="owner", ttl_action="stop")
    expire_ttl(seen_by_the_sweep)
    vmhost.settle()
    assert now(row).status == "stopped"


def test_memory_with_a_longer_retention_is_kept(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(Status.SLEEPING, suspend_after=120, memory_expires_at=timezone.now() - timedelta(seconds=1))
    seen_by_the_sweep = now(row)
    lifecycle.set_idle(workspace=row, actor="owner", stop_after=0)
    assert expire_memory(seen_by_the_sweep) is False
    vmhost.settle()
    assert now(row).status == "sleeping"


def test_an_idle_policy_switched_off_in_the_last_moment_holds_it_awake(
    vmhost: FakeHost, machine: Callable[..., Workspace]
) -> None:
    row = machine(suspend_after=120, idle_due_at=timezone.now() - timedelta(seconds=1))
    vmhost.hold_tasks()
    assert sweep_due() == 1
    lifecycle.set_idle(workspace=row, actor="owner", suspend_after=0)
    vmhost.release_tasks()
    vmhost.settle()
    assert (now(row).status, vmhost.driver.state(row.pk)) == ("running", MachineState.RUNNING)


def test_a_policy_of_no_restarts_ends_one_that_waits(vmhost: FakeHost, machine: Callable[..., Workspace]) -> None:
    row = machine(Status.STOPPED, restart_policy=RestartPolicy.ALWAYS, restart_due_at=timezone.now())
    lifecycle.make_permanent(workspace=row, actor="owner", restart_policy=RestartPolicy.NO)
    assert sweep_due() == 0
    vmhost.settle()
    assert (now(row).status, now(row).restart_due_at) == ("stopped", None)


@pytest.mark.parametrize("step", ["prepare_machine", "wait_ready"])
def test_ssh_switched_off_while_it_starts_is_off_when_it_runs(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    row = machine(Status.STOPPED, ssh_enabled=True)
    configured: list[bool] = []
    monkeypatch.setattr(ssh, "configure_ssh", lambda row: configured.append(row.ssh_enabled))

    def switch_off() -> None:
        changed = ssh.ssh_switch(workspace=now(row), actor="owner", enabled=False)
        assert "next start" in (ssh.apply_in_guest(changed) or "")

    Scene(vmhost, monkeypatch, "start", step, row.pk).before(switch_off)
    power.workspace_start(workspace=row, actor="owner")
    vmhost.settle()
    assert (now(row).status, now(row).ssh_enabled, now(row).ssh_stale) == ("running", False, False)
    started_without = step == "prepare_machine"
    assert configured == ([] if started_without else [False])
    domain = vmhost.driver._store.domain(row.pk)
    assert domain is not None
    assert domain.spec.boot.ssh is not started_without


# Reconcile


def test_an_operation_that_ends_between_two_looks_keeps_its_end(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = machine()
    Workspace.objects.filter(pk=row.pk).update(status=Status.STARTING, ready=False)
    seen, real = now(row), machines.transition

    def after_its_end(*args: Any, **fields: Any) -> None:
        Workspace.objects.filter(pk=row.pk).update(status=Status.RUNNING, ready=True)
        real(*args, **fields)

    monkeypatch.setattr(machines, "transition", after_its_end)
    assert machines._reconcile_row(vmhost.runtime, seen, vmhost.driver.inventory()) is False
    assert now(row).status == "running"


def test_a_stop_that_ends_while_the_host_is_looked_at_is_no_fault(
    vmhost: FakeHost, machine: Callable[..., Workspace], monkeypatch: pytest.MonkeyPatch
) -> None:
    row, look = machine(), vmhost.driver.inventory

    def stopped_since() -> Any:
        found = look()
        power.workspace_stop(workspace=now(row), actor="owner")
        vmhost.settle()
        return found

    monkeypatch.setattr(vmhost.driver, "inventory", stopped_since)
    machines.reconcile_machines(vmhost.runtime)
    assert set(Activity.objects.filter(workspace_id=row.pk).values_list("action", flat=True)) == {"stopped"}


@pytest.mark.parametrize("status", [Status.SLEEPING, Status.RUNNING])
def test_a_machine_that_reconcile_lets_go_on_has_the_right_time(
    vmhost: FakeHost, machine: Callable[..., Workspace], status: Status
) -> None:
    row = machine(status)
    if status is Status.SLEEPING:
        vmhost.driver.start(row.pk)
    vmhost.driver.pause(row.pk)
    reconcile_rows_and_machines(vmhost.runtime)
    assert (now(row).status, vmhost.driver.state(row.pk)) == ("running", MachineState.RUNNING)
    assert vmhost.driver.resync_count(row.pk) == 1


# Another account


def test_the_last_memory_of_a_host_goes_to_one_account(
    new_account: Callable[..., Caller], vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = make_host()
    monkeypatch.setattr(settings, "ENV", settings.ENV.model_copy(update={"memory_overcommit": 1.0}))
    monkeypatch.setattr(settings.ENV, "memory_reserve_mb", 0)
    Host.objects.filter(pk=host.pk).update(memory_mb=2048)
    fields = {"status": Status.STOPPED, "started_at": None, "memory_mb": 1500}
    rows = [
        make_workspace(new_account(f"account {n}").account, host=host, ip=f"10.200.1.{n}", **fields) for n in (1, 2, 3)
    ]
    barrier, take, answers = threading.Barrier(len(rows)), placement._take, list[str]()
    vmhost.hold_tasks()

    def slow_take(*wanted: Any, **options: Any) -> Host | None:
        found = take(*wanted, **options)
        threading.Event().wait(0.1)
        return found

    def start(row: Workspace) -> None:
        barrier.wait()
        try:
            power.workspace_start(workspace=row, actor="owner")
            answers.append("started")
        except DomainError as exc:
            answers.append(exc.code)
        finally:
            connections.close_all()

    monkeypatch.setattr(placement, "_take", slow_take)
    threads = [threading.Thread(target=start, args=(now(row),)) for row in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == ["VM_UNAVAILABLE", "VM_UNAVAILABLE", "started"]
    assert vmhost.held_tasks is not None
    vmhost.held_tasks.clear()  # these rows have no machines
