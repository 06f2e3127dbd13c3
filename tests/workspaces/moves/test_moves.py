"""Moves of workspaces to another host: what goes along, and that nothing of it is left behind or runs twice."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from django.db.models import Sum
from django.utils import timezone

from tests.threads import wait_until
from tests.workspaces.moves.conftest import NOTE, Moving
from tests.workspaces.moves.pair import SUBNET
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import bring
from vmbackend.copies import Difference
from vmbackend.errors import BackendUnavailable, CapacityExceeded
from vmbackend.models import Host
from workspaces.crud.services import workspace_delete
from workspaces.models import Activity, Move, Operation, Snapshot, Workspace
from workspaces.models.move import MoveState
from workspaces.models.operation import OperationKind, OperationState
from workspaces.moves.services import move_cancel
from workspaces.promised import prove_promises
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def bring_to(moving: Moving, status: Status) -> None:
    if status is not Status.RUNNING:
        bring(moving.api, moving.hosts, moving.id, status)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.SLEEPING, Status.STOPPED])
def test_a_workspace_is_on_the_other_host_as_it_was(moving: Moving, status: Status) -> None:
    bring_to(moving, status)
    before = moving.row
    moving.begin()
    move = moving.finish()
    row = moving.row
    assert (move.state, row.status, row.host_id) == (MoveState.COMMITTED, status, moving.hosts.second.host_id)
    assert (row.epoch, row.ip) == (before.epoch + 1, move.address)
    assert IPv4Address(row.ip) in IPv4Network(SUBNET)
    assert row.ready is (status is Status.RUNNING)
    if status is not Status.RUNNING:
        assert moving.api.post(f"/workspace/{moving.id}/start").status_code == 200
    assert moving.found() == (NOTE, "" if status is Status.STOPPED else NOTE)
    assert Activity.objects.get(action="moved").detail.endswith("rack 3 is hot")


@pytest.mark.parametrize("status", [Status.RUNNING, Status.SLEEPING, Status.STOPPED])
def test_nothing_is_left_where_it_was(moving: Moving, status: Status) -> None:
    bring_to(moving, status)
    moving.begin()
    moving.finish()
    moving.hosts.reconcile()
    assert moving.id not in moving.hosts.driver.inventory().ids()
    assert moving.hosts.driver.kept_orphans() == moving.hosts.second_driver.kept_orphans() == ()
    assert moving.hosts.driver.inventory().snapshots == moving.hosts.second_driver.inventory().snapshots == frozenset()
    assert moving.hosts.transfers._offers == {}
    assert prove_promises() == 0
    promised = Host.objects.values_list("name").annotate(sum=Sum("disk_promised_mb"))
    assert dict(promised) == {"local": 0, "second": moving.row.applied_disk_size_mb}


def test_the_disk_of_a_running_one_travels_while_it_runs(moving: Moving) -> None:
    seen: list[tuple[str, str]] = []
    moving.hosts.second_transfers.before_fetch = lambda offer_id: seen.append((offer_id, moving.row.status))
    move = moving.begin()
    moving.finish()
    assert seen == [(f"{move.pk}_first", Status.RUNNING), (move.pk, Status.MOVING)]
    files = moving.hosts.second_transfers.went_on_with
    assert (files[f"{move.pk}_first"], "disk-0.raw" in files[move.pk]) == (set(), True)
    follower = Operation.objects.get(pk=moving.move.follower_id)
    assert (follower.kind, follower.state) == (OperationKind.WAKE, OperationState.SUCCEEDED)


def test_without_its_memory_it_starts_anew(moving: Moving) -> None:
    moving.begin(memory=False)
    moving.finish()
    assert moving.row.status == Status.RUNNING
    assert moving.found() == (NOTE, "")


def test_its_snapshots_go_along(moving: Moving) -> None:
    made = moving.api.post(f"/workspace/{moving.id}/snapshot", {"name": "kept"}).json()["snapshot"]
    moving.begin()
    moving.finish()
    moving.hosts.reconcile()
    assert moving.hosts.second_driver.inventory().snapshots == {made["id"]}
    assert moving.hosts.driver.inventory().snapshots == frozenset()
    row = Snapshot.objects.get()
    assert (row.host_id, row.status) == (moving.hosts.second.host_id, "ready")


def test_no_host_named_means_the_best_one(moving: Moving) -> None:
    moving.begin(to=None)
    assert moving.finish().target_id == moving.hosts.second.host_id


def test_room_and_address_are_reserved_until_the_end(moving: Moving) -> None:
    moving.hosts.second_transfers.before_fetch = _raising(BackendUnavailable("away"))
    move = moving.begin()
    row = moving.row
    second = Host.objects.get(pk=moving.hosts.second.host_id)
    assert (second.memory_promised_mb, second.disk_promised_mb) == (row.applied_memory_mb, row.applied_disk_size_mb)
    assert Workspace.objects.filter(ip=move.address).count() == 0
    move_cancel(workspace=row, actor="staff ada")
    moving.finish()
    second.refresh_from_db()
    assert (second.memory_promised_mb, second.disk_promised_mb) == (0, 0)


@pytest.mark.parametrize("status", [Status.RUNNING, Status.SLEEPING, Status.STOPPED])
@pytest.mark.parametrize("at", ["first copy", "machine"])
def test_what_the_target_refuses_goes_on_where_it_was(moving: Moving, status: Status, at: str) -> None:
    bring_to(moving, status)
    call = "receive_snapshot" if at == "first copy" else "prepare"
    moving.hosts.second_driver.fail_next(call, CapacityExceeded("The disk of the host is full."), times=100)
    moving.begin()
    move = moving.finish()
    row = moving.row
    assert (move.state, move.error_code) == (MoveState.FAILED, "no_room")
    assert (row.status, row.host_id, row.epoch) == (status, moving.hosts.runtime.host_id, move.epoch)
    assert moving.hosts.second_driver.inventory().ids() == frozenset()
    if status is not Status.STOPPED:
        assert moving.found() == (NOTE, NOTE)


def test_memory_that_does_not_fit_is_refused_before_it_is_copied(moving: Moving) -> None:
    bring(moving.api, moving.hosts, moving.id, Status.SLEEPING)
    differs = (Difference("processor", "a", "b"),)
    moving.hosts.second_driver.set_lacks(*differs)
    moving.begin()
    move = moving.finish()
    assert (move.state, move.error_code) == (MoveState.FAILED, "host_unfit")
    assert move.arrival.differs == [{"what": "processor", "source": "a", "target": "b"}]
    assert moving.hosts.second_transfers.fetched == []
    assert (moving.row.status, moving.found()) == (Status.SLEEPING, (NOTE, NOTE))


def test_an_error_that_passes_is_gone_on_with(moving: Moving) -> None:
    failures = [BackendUnavailable("The connection was lost."), BackendUnavailable("The connection was lost.")]

    def fail_twice(offer_id: str) -> None:
        if failures:
            raise failures.pop()

    moving.hosts.second_transfers.before_fetch = fail_twice
    moving.begin()
    assert moving.finish().state == MoveState.COMMITTED
    assert (moving.row.status, moving.move.arrival.attempts) == (Status.RUNNING, 2)


def test_a_machine_that_ends_by_itself_meanwhile_has_ended_and_stays(moving: Moving) -> None:
    ended: list[str] = []

    def end(offer_id: str) -> None:
        if not ended:
            ended.append(offer_id)
            moving.hosts.driver.kill(moving.id)

    moving.hosts.second_transfers.before_fetch = end
    moving.begin()
    move = moving.finish()
    row = moving.row
    assert (move.state, row.status, row.last_exit_reason) == (MoveState.FAILED, Status.STOPPED, "crashed")
    assert row.host_id == moving.hosts.runtime.host_id
    assert (moving.hosts.driver._store.directory(moving.id) / "disk" / "note").read_text() == NOTE


def test_a_snapshot_that_is_read_stays_until_it_is_not_read(moving: Moving) -> None:
    made = [moving.api.post(f"/workspace/{moving.id}/snapshot", {"name": name}).json()["snapshot"] for name in "ab"]
    other = make_workspace(moving.api.account, host=moving.row.host, ip="10.200.9.9", status=Status.CREATING)
    reading = {"kind": OperationKind.CREATE, "queue": "nowhere", "params": {"snapshot": made[0]["id"]}}
    Operation.objects.create(workspace=other, deadline_at=timezone.now() + timedelta(hours=1), **reading)
    moving.begin()
    wait_until(lambda: Move.objects.filter(state=MoveState.COMMITTED).exists(), 60)
    moving.hosts.settle()
    moving.hosts.reconcile()
    assert set(Snapshot.objects.values_list("host__name", flat=True)) == {"second"}
    assert made[0]["id"] in moving.hosts.driver.inventory().snapshots
    Operation.objects.filter(queue="nowhere").delete()
    moving.finish()
    assert moving.hosts.driver.inventory().snapshots == frozenset()
    assert moving.hosts.second_driver.inventory().snapshots == {each["id"] for each in made}


@pytest.mark.parametrize("status", [Status.RUNNING, Status.SLEEPING, Status.STOPPED])
def test_staff_end_a_move_before_its_commit(moving: Moving, status: Status) -> None:
    bring_to(moving, status)
    moving.hosts.second_transfers.before_fetch = _raising(BackendUnavailable("away"))
    moving.begin()
    move_cancel(workspace=moving.row, actor="staff ada")
    move = moving.finish()
    assert (move.state, moving.row.status) == (MoveState.CANCELLED, status)
    assert moving.row.host_id == moving.hosts.runtime.host_id


def test_a_delete_ends_a_move(moving: Moving) -> None:
    moving.hosts.second_transfers.before_fetch = _raising(BackendUnavailable("away"))
    moving.begin()
    workspace_delete(workspace=moving.row, actor="client")
    move = moving.finish()
    assert move.state == MoveState.CANCELLED
    assert not Workspace.objects.exists()
    assert moving.hosts.driver.inventory().ids() == moving.hosts.second_driver.inventory().ids() == frozenset()


def test_a_target_that_falls_silent_ends_the_move(moving: Moving) -> None:
    moving.hosts.second_transfers.before_fetch = _raising(BackendUnavailable("away"))
    moving.begin()
    moving.hosts.second.stop()
    Host.objects.filter(pk=moving.hosts.second.host_id).update(lease_until=None)
    wait_until(lambda: Move.objects.filter(state=MoveState.FAILED).exists())
    moving.hosts.start_second()
    moving.finish()
    assert (moving.row.status, moving.move.error_code) == (Status.RUNNING, "host_not_active")


def test_it_comes_back_the_same_way(moving: Moving) -> None:
    moving.begin()
    moving.finish()
    moving.begin(to=Host.objects.get(name="local"))
    moving.finish()
    row = moving.row
    assert (row.host_id, row.status, row.epoch) == (moving.hosts.runtime.host_id, Status.RUNNING, 3)
    assert moving.found() == (NOTE, NOTE)
    assert moving.hosts.second_driver.inventory().ids() == frozenset()


def _raising(error: Exception) -> Any:
    def fail(offer_id: str) -> None:
        raise error

    return fail
