"""A machine belongs to its workspace only if it has the workspace's epoch; a former copy is set aside, not deleted."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.conf import settings
from django.db.models import F
from django.test import Client

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.vm.client import until
from tests.workspaces.faults import fault_cases
from tests.workspaces.rows import make_host
from tests.workspaces.test_states import SERVICES
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable
from vmbackend.models import Host
from workspaces import rows
from workspaces.gauges import gauges
from workspaces.host import ownership
from workspaces.host.ownership import KEPT_FOR
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.models import Activity, Workspace
from workspaces.states import Status
from workspaces.transitions import TransitionLost, transition

pytestmark = pytest.mark.django_db(transaction=True)
NOTE = "of before"


def with_note(host: FakeHost, api: Caller, status: Status = Status.RUNNING, **fields: Any) -> Workspace:
    """A workspace whose disk has a note."""
    row = fault_cases.machine(host, api.account, status, **fields)
    (host.driver._store.directory(row.pk) / "disk" / "note").write_text(NOTE)
    rows.update_row(row, ssh_host_key="ssh-ed25519 of its disk")
    return row


def give_to_another(row: Workspace, *, host: str | None = None) -> None:
    """Give the row another epoch, as a move does or a newer database; and another host, if there is one."""
    Workspace.objects.filter(pk=row.pk).update(epoch=F("epoch") + 1)
    if host:
        Workspace.objects.filter(pk=row.pk).update(host=make_host(host))


def kept_note(host: FakeHost) -> str:
    [orphan] = host.driver.kept_orphans()
    return (host.driver._store.root / "orphans" / orphan.name / "disk" / "note").read_text()


def events(row: Workspace) -> list[str]:
    return list(Activity.objects.filter(workspace_id=row.pk).values_list("action", flat=True))


@pytest.mark.parametrize("status", [Status.RUNNING, Status.PAUSED, Status.SLEEPING, Status.STOPPED])
def test_reconcile_sets_a_machine_of_another_epoch_aside(api: Caller, vmhost: FakeHost, status: Status) -> None:
    row, other = with_note(vmhost, api, status), fault_cases.machine(vmhost, api.account)
    give_to_another(row)
    reconcile_rows_and_machines(vmhost.runtime)
    assert (vmhost.driver.state(row.pk), vmhost.driver.state(other.pk)) == (MachineState.ABSENT, MachineState.RUNNING)
    assert kept_note(vmhost) == NOTE
    assert "copy_set_aside" in events(row)
    row.refresh_from_db()
    assert row.status in (Status.LOST, Status.STOPPED)
    assert reconcile_rows_and_machines(vmhost.runtime) == 0
    assert len(vmhost.driver.kept_orphans()) == 1


def test_a_database_older_than_the_host_has_nothing_deleted(api: Caller, vmhost: FakeHost) -> None:
    """Rows of an older database have lower epochs, or are not there at all."""
    newer = with_note(vmhost, api, epoch=5)
    Workspace.objects.filter(pk=newer.pk).update(epoch=3)
    reconcile_rows_and_machines(vmhost.runtime)
    assert [(kept.machine_id, kept.epoch) for kept in vmhost.driver.kept_orphans()] == [(newer.pk, 5)]
    assert kept_note(vmhost) == NOTE


def test_a_machine_of_a_workspace_that_is_on_another_host_is_set_aside_at_once(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings.ENV, "orphan_grace_seconds", 3600)
    row = with_note(vmhost, api)
    give_to_another(row, host="elsewhere")
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.inventory().ids() == frozenset()
    assert kept_note(vmhost) == NOTE
    row.refresh_from_db()
    assert (row.status, row.ready) == ("running", True)


def test_the_disk_of_a_workspace_without_a_row_is_kept(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings.ENV, "orphan_grace_seconds", 3600)
    row = with_note(vmhost, api)
    Workspace.objects.filter(pk=row.pk).delete()
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.state(row.pk) is MachineState.RUNNING, "its row may come back"
    monkeypatch.setattr(settings.ENV, "orphan_grace_seconds", 0)
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.inventory().ids() == frozenset()
    assert kept_note(vmhost) == NOTE


@pytest.mark.parametrize(("status", "operation"), [("stopped", "start"), ("running", "restart"), ("sleeping", "start")])
def test_nothing_of_another_epoch_is_started_or_loaded(
    api: Caller, vmhost: FakeHost, status: str, operation: str
) -> None:
    row = with_note(vmhost, api, Status(status))
    give_to_another(row)
    answer = api.post(f"/workspace/{row.pk}/{operation}")
    vmhost.settle()
    assert answer.status_code == 503, answer.json()
    assert "set aside" in answer.json()["message"]
    assert vmhost.driver.state(row.pk) is MachineState.ABSENT
    assert kept_note(vmhost) == NOTE
    reconcile_rows_and_machines(vmhost.runtime)
    again = api.post(f"/workspace/{row.pk}/start")
    assert again.status_code == 200, again.json()
    vmhost.settle()
    assert vmhost.driver.epoch_of(row.pk) == row.epoch + 1
    assert not (vmhost.driver._store.directory(row.pk) / "disk" / "note").exists()
    assert "disk_lost" in events(row)
    assert kept_note(vmhost) == NOTE


def test_the_memory_of_another_epoch_is_kept_too(api: Caller, vmhost: FakeHost) -> None:
    row = with_note(vmhost, api, Status.SLEEPING)
    give_to_another(row)
    reconcile_rows_and_machines(vmhost.runtime)
    [orphan] = vmhost.driver.kept_orphans()
    assert (vmhost.driver._store.root / "orphans" / orphan.name / "memory.saved").read_text() == "whole"


@pytest.mark.parametrize("operation", ["delete", "destroy"])
def test_a_delete_leaves_the_disk_of_another_epoch(api: Caller, vmhost: FakeHost, operation: str) -> None:
    row = with_note(vmhost, api)
    give_to_another(row)
    SERVICES[operation][0](workspace=Workspace.objects.select_related("host").get(pk=row.pk), actor="owner")
    vmhost.settle()
    assert vmhost.driver.inventory().ids() == frozenset()
    assert kept_note(vmhost) == NOTE


def test_a_former_host_writes_nothing_to_the_row(api: Caller, vmhost: FakeHost) -> None:
    row = fault_cases.machine(vmhost, api.account)
    former = Workspace.objects.get(pk=row.pk)
    give_to_another(row)
    with pytest.raises(TransitionLost):
        transition(former, Status.STOPPED)
    assert not rows.update_row(former, image_digest="sha256:of the former one")
    now = Workspace.objects.get(pk=row.pk)
    assert (now.status, now.image_digest) == ("running", row.image_digest)


def test_a_machine_with_an_operation_in_flight_is_left_to_it(api: Caller, vmhost: FakeHost) -> None:
    row = with_note(vmhost, api)
    vmhost.hold_tasks()
    SERVICES["stop"][0](workspace=row, actor="owner")
    give_to_another(row)
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.kept_orphans() == ()
    vmhost.release_tasks()
    vmhost.settle()
    assert kept_note(vmhost) == NOTE


@pytest.mark.parametrize("moved", [False, True], ids=["another epoch", "another host"])
def test_the_end_of_a_former_copy_says_nothing_of_the_workspace(api: Caller, vmhost: FakeHost, moved: bool) -> None:
    row = with_note(vmhost, api, cmd=["serve"], remove_on_exit=True)
    give_to_another(row, host="elsewhere" if moved else None)
    vmhost.driver.exit(row.pk, 0)
    until(lambda: not vmhost.driver._store.has_events(), 60, "its end is reported")
    now = Workspace.objects.get(pk=row.pk)
    assert (now.status, now.ready) == ("running", True)


@pytest.mark.parametrize("point", ["set_aside", "set_aside:ended"])
def test_one_that_cannot_be_set_aside_is_at_the_next_pass(api: Caller, vmhost: FakeHost, point: str) -> None:
    row, other = with_note(vmhost, api), with_note(vmhost, api)
    give_to_another(row)
    give_to_another(other)
    vmhost.driver.fail_next(point, BackendUnavailable("Not now."))
    reconcile_rows_and_machines(vmhost.runtime)
    assert len(vmhost.driver.kept_orphans()) == 1
    reconcile_rows_and_machines(vmhost.runtime)
    assert {kept.machine_id for kept in vmhost.driver.kept_orphans()} == {row.pk, other.pk}


def test_a_kept_orphan_is_shown_to_staff_and_removed_after_seven_days(
    api: Caller, vmhost: FakeHost, staff: Client
) -> None:
    row = with_note(vmhost, api)
    give_to_another(row)
    reconcile_rows_and_machines(vmhost.runtime)
    [kept] = vmhost.driver.kept_orphans()
    host = Host.objects.get()
    assert [each["name"] for each in host.orphans] == [kept.name]
    assert kept.name in staff.get(f"/admin/vmbackend/host/{host.pk}/change/").content.decode()
    assert counted_orphans(host) == 1

    almost = vmhost.driver.keep_since(kept.name, time.time() - KEPT_FOR.total_seconds() + 60)
    reconcile_rows_and_machines(vmhost.runtime)
    assert [each.name for each in vmhost.driver.kept_orphans()] == [almost]
    vmhost.driver.keep_since(almost, time.time() - KEPT_FOR.total_seconds() - 60)
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.kept_orphans() == ()
    assert counted_orphans(host) == 0


def test_an_orphan_that_cannot_be_removed_holds_up_nothing(api: Caller, vmhost: FakeHost) -> None:
    row = with_note(vmhost, api)
    give_to_another(row)
    reconcile_rows_and_machines(vmhost.runtime)
    [kept] = vmhost.driver.kept_orphans()
    name = vmhost.driver.keep_since(kept.name, time.time() - KEPT_FOR.total_seconds() - 60)
    vmhost.driver.fail_next("remove_orphan", BackendUnavailable("Not this one."))
    reconcile_rows_and_machines(vmhost.runtime)
    assert [each["name"] for each in Host.objects.get().orphans] == [name]
    reconcile_rows_and_machines(vmhost.runtime)
    assert vmhost.driver.kept_orphans() == ()


def test_a_start_whose_vmhost_dies_once_the_copy_is_aside_begins_no_empty_disk(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = with_note(vmhost, api, Status.STOPPED)
    give_to_another(row)
    with monkeypatch.context() as patched:

        def die(*_: Any) -> None:
            patched.undo()
            raise vmhost.begin_death()

        patched.setattr(ownership, "record_activity", die)
        SERVICES["start"][0](workspace=Workspace.objects.select_related("host").get(pk=row.pk), actor="owner")
        vmhost.settle_across_deaths()
    row.refresh_from_db()
    assert (row.status, row.error_code) == ("stopped", "machine_set_aside")
    assert vmhost.driver.state(row.pk) is MachineState.ABSENT
    assert kept_note(vmhost) == NOTE


def counted_orphans(host: Host) -> float:
    [metric] = [each for each in gauges() if each.name == "mvm_orphans"]
    [value] = [sample.value for sample in metric.samples if sample.labels == {"host": host.name}]
    return value


def test_a_creation_that_is_retried_on_another_host_is_another_assignment(api: Caller, vmhost: FakeHost) -> None:
    row = fault_cases.machine(vmhost, api.account, Status.FAILED)
    Workspace.objects.filter(pk=row.pk).update(host=make_host("elsewhere"), provisioning_state="failed")
    Host.objects.filter(name="elsewhere").update(state="draining")
    vmhost.hold_tasks()
    answer = api.post(f"/workspace/{row.pk}/provisioning/retry")
    assert answer.status_code in (200, 202), answer.json()
    row.refresh_from_db()
    assert (row.host_id, row.epoch) == (vmhost.runtime.host_id, 2)
