"""Everything that vmhost does, with its host's own role: a statement that lacks a grant (common/host_access/grants.py)
fails here.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from domains.models import CustomDomain, TargetKind
from tests.callers import Caller
from tests.host_access.confined_host import ConfinedHost, logged_in, refused
from tests.webhooks.outbox import published, subscribe
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.fault_cases import CASES, Case
from tests.workspaces.pool.conftest import SHAPE, with_settings
from tests.workspaces.usage.measured import CPU, MeasuredHost, metered_cpu
from vmbackend.models import Host
from workspaces import tasks
from workspaces.crud.services import workspace_delete
from workspaces.host.metering.writer import UsageWriter
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.host.sweep import sweep_due
from workspaces.kept_orphans import prepare_put_back, put_back_complete
from workspaces.models import MeterRecord, Snapshot, WarmMachine, Workspace
from workspaces.models.warm_machine import WarmState
from workspaces.states import Status
from workspaces.warm_machines import record_request

__all__ = ["with_settings"]

pytestmark = pytest.mark.django_db(transaction=True)
# A forced start, and operations on what is stopped, have the statements of others.
OF_CASES = {"create", "start", "stop", "restart", "pause", "resume", "sleep", "wake", "resize running", "reinstall",
            "snapshot", "restore", "fork", "destroy", "delete"}  # fmt: skip


def reconcile(host: ConfinedHost) -> None:
    with logged_in(host.id):
        reconcile_rows_and_machines(host.runtime)
    host.settle()


@pytest.fixture
def account(api: Caller) -> Any:
    subscribe(api.account)
    return api.account


@pytest.fixture(autouse=True)
def nothing_is_refused() -> Any:
    yield
    assert refused == []


@pytest.mark.parametrize("case", [case for case in CASES if case.name in OF_CASES], ids=lambda case: case.name)
def test_an_operation_succeeds_and_leaves_nothing_to_reconcile(
    confined: ConfinedHost, account: Any, case: Case
) -> None:
    key = fault_cases.begin(confined, account, case)
    confined.release_tasks()
    confined.settle()
    row = Workspace.objects.filter(pk=key).first()
    assert (row.status if row else None) == case.ends
    reconcile(confined)
    tasks.charge_snapshots()
    assert fault_cases.inconsistencies(confined, key) == []


def test_the_end_of_a_machine_is_told_and_its_restart_carried_out(confined: ConfinedHost, account: Any) -> None:
    row = fault_cases.permanent_machines(confined, account)(restart_policy="always")
    confined.driver.kill(row.pk)
    until = time.monotonic() + 60
    while Workspace.objects.get().restart_due_at is None:
        assert time.monotonic() < until
        time.sleep(0.01)
    Workspace.objects.update(restart_due_at=timezone.now())
    sweep_due()
    confined.settle()
    assert Workspace.objects.get().status == Status.RUNNING
    assert [name for name, _ in published(account)] == ["vm.exited"]


def test_an_idle_one_falls_asleep(confined: ConfinedHost, account: Any) -> None:
    fault_cases.idle_machines(confined, account, 120)()
    sweep_due()
    confined.settle()
    assert Workspace.objects.get().status == Status.SLEEPING


def test_what_a_machine_used_is_charged_also_when_its_row_is_gone(
    confined: ConfinedHost, account: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = MeasuredHost(account, tmp_path, monkeypatch)
    row, other = measured.machine(), measured.machine()
    with logged_in(confined.id):
        measured.seconds(2, row, cpu_time_ns=CPU // 10)
        measured.flush()
        measured.seconds(2, row, cpu_time_ns=CPU // 10)
    Workspace.objects.filter(pk=row.pk).delete()
    with logged_in(confined.id):
        measured.seconds(1, other, cpu_time_ns=CPU // 10)
        measured.flush()
    assert metered_cpu(row) == 4 * CPU // 10
    assert metered_cpu(other) == CPU // 10


def test_one_that_was_never_its_own_keeps_no_other_from_being_charged(
    confined: ConfinedHost, account: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = MeasuredHost(account, tmp_path, monkeypatch)
    row, other = measured.machine(), measured.machine()
    measured.writer.away = True
    with logged_in(confined.id):
        measured.seconds(2, row, cpu_time_ns=CPU // 10)
        measured.flush()
    Workspace.objects.filter(pk=row.pk).delete()
    tick, deltas = measured.writer.waiting[-1]
    assert {*deltas} == {row.pk, other.pk}
    with logged_in(confined.id):
        assert not UsageWriter()._write(tick, deltas)
    assert [record.metered.workspace_id for record in MeterRecord.objects.all()] == [other.pk]
    assert len(refused) == 2
    refused.clear()


def test_a_pool_is_filled_and_emptied(with_settings: None, confined: ConfinedHost) -> None:
    record_request(SHAPE, Host.objects.get(), served=False)
    with logged_in(confined.id):
        confined.runtime.pool.run_once()
        confined.runtime.pool.run_once()
        assert WarmMachine.objects.get().state == WarmState.READY
        confined.runtime.pool.empty_pool()
    assert not WarmMachine.objects.exists()


def test_a_deleted_snapshot_goes_and_is_charged_by_the_control_plane(confined: ConfinedHost, account: Any) -> None:
    row = fault_cases.machine(confined, account)
    fault_cases.keep(confined, row)
    Snapshot.objects.update(deleted_at=timezone.now())
    with logged_in(confined.id):
        tasks.remove_snapshots()
    assert Snapshot.objects.get().removed_at is not None
    assert not confined.driver.inventory().snapshots
    tasks.charge_snapshots()
    assert not Snapshot.objects.exists()


def test_a_policy_is_applied_and_answered(confined: ConfinedHost, account: Any, api: Caller) -> None:
    row = fault_cases.machine(confined, account)
    assert api.put(f"/workspace/{row.pk}/network", {"allow_internet": False}).status_code == 200
    assert not confined.driver.policy_of(row.pk).allow_internet
    assert not Workspace.objects.get().network_stale


def test_the_domain_of_a_deleted_workspace_is_disconnected_by_the_control_plane(
    confined: ConfinedHost, account: Any
) -> None:
    row = fault_cases.machine(confined, account)
    CustomDomain.objects.create(account=account, name="a.example", target_kind=TargetKind.WORKSPACE, target_id=row.pk)
    workspace_delete(workspace=row, actor="owner")
    confined.settle()
    assert not Workspace.objects.exists()
    tasks.disconnect_domains()
    assert not CustomDomain.objects.exists()


def test_a_former_copy_is_set_aside_and_one_of_another_host_is_not_deleted(
    confined: ConfinedHost, account: Any
) -> None:
    moved, again = (fault_cases.machine(confined, account) for _ in range(2))
    Host.objects.create(name="other", subnet="10.201.0.0/20")
    Workspace.objects.filter(pk=moved.pk).update(host=Host.objects.get(name="other"), epoch=9)
    Workspace.objects.filter(pk=again.pk).update(epoch=9)
    reconcile(confined)
    reconcile(confined)
    assert len(confined.driver.kept_orphans()) == 2


def test_kept_files_are_put_back_by_a_host_that_does_not_see_the_row_yet(
    confined: ConfinedHost, account: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings.ENV, "orphan_grace_seconds", 0)
    row = fault_cases.machine(confined, account)
    gone = Host.objects.create(name="gone", subnet="10.201.0.0/20", state="gone")
    lost = {"host": gone, "epoch": 9, "status": "lost", "error_code": "host_lost", "ip": "10.201.0.9"}
    Workspace.objects.filter(pk=row.pk).update(**lost)
    reconcile(confined)
    host = Host.objects.get(pk=confined.id)
    planned = prepare_put_back(host=host, workspace_id=row.pk)
    reconcile(confined)
    assert len(confined.driver.kept_orphans()) == 1, "a stray for as long as no row says otherwise"
    with transaction.atomic():
        put_back_complete(planned=planned, actor="staff", reason="it is back")
    reconcile(confined)
    assert (confined.driver.epoch_of(row.pk), confined.driver.kept_orphans()) == (planned.epoch, ())
