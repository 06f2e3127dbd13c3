"""Moves that something else ends, or that one host spoils: others go on, and no room stays taken."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from tests.threads import wait_until
from tests.workspaces.moves.conftest import NOTE, Moving
from tests.workspaces.rows import make_workspace
from vmbackend.driver import StopReason
from vmbackend.errors import BackendUnavailable
from workspaces.crud.services import workspace_delete
from workspaces.host.metering.roster import meter_targets
from workspaces.models import Arrival, Move, Operation, Snapshot, Workspace
from workspaces.models.move import ArrivalState, MoveState
from workspaces.models.operation import LIVE
from workspaces.moves.commits import commit_ready_moves
from workspaces.promised import prove_promises
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_delete_of_one_whose_move_waits_leaves_nothing(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workspaces.operations.queue.MOVES_AT_ONCE", 0)
    moving.begin()
    workspace_delete(workspace=moving.row, actor="client")
    moving.finish()
    assert not Workspace.objects.exists()
    assert moving.move.state == MoveState.CANCELLED
    assert prove_promises() == 0


def spoil_received(moving: Moving, move: Move) -> None:
    Arrival.objects.update(received=5)


def spoil_address(moving: Moving, move: Move) -> None:
    make_workspace(moving.row.account, host_id=moving.hosts.second.host_id, ip=move.address, name="thief")


@pytest.mark.parametrize("spoil", [spoil_received, spoil_address])
def test_a_spoilt_move_holds_up_no_other(moving: Moving, spoil: Any) -> None:
    moving.hosts.holds_commits = True
    move = moving.begin()
    wait_until(lambda: Arrival.objects.filter(state=ArrivalState.READY).exists(), 30)
    spoil(moving, move)
    commit_ready_moves()
    Operation.objects.filter(pk=move.operation_id).update(cancel_requested=True)
    moving.finish()
    assert moving.row.status == Status.RUNNING


def test_what_a_source_offers_of_others_is_not_taken(moving: Moving) -> None:
    """Nor removed at the end."""
    driver, others = moving.hosts.second_driver, []
    for key in ("snap_other", "mv_other"):
        moving.hosts.driver.snapshot(moving.id, key, memory=False)
        others.append({"id": key, "bytes": 1})
        folder = moving.hosts.driver.snapshot_folder(key)
        driver.receive_snapshot(
            key, lambda into, folder=folder: shutil.copytree(folder, into, dirs_exist_ok=True), size_bytes=1
        )
    taken = {"id": "mv_evil", "bytes": 1}
    moving.hosts.second_transfers.before_fetch = lambda offer_id: Move.objects.filter(state="live").update(
        offers=[*others, taken, *(each for each in moving.move.offers if each not in (*others, taken))]
    )
    moving.begin()
    moving.finish()
    assert moving.hosts.second_transfers.fetched == [moving.move.first_id, moving.move.pk]
    assert driver.inventory().snapshots == {"snap_other", "mv_other"}
    for key in ("snap_other", "mv_other"):
        driver.remove_snapshot(key)
        moving.hosts.driver.remove_snapshot(key)


class HeldCreations:
    """Creations that wait for a thread of their host, until `release`."""

    def __init__(self, moving: Moving) -> None:
        self._hosts, self._run = moving.hosts, moving.hosts._submit
        self._ids: set[str] = set()
        moving.hosts._submit = self._submit  # type: ignore[method-assign]

    def _submit(self, name: str, args: Any, headers: Any = None) -> None:
        kept = name.endswith("run_operation") and Operation.objects.filter(pk=args[0], kind="create").exists()
        if kept:
            self._ids.add(args[0])
        else:
            self._run(name, args, headers)

    def request(self, ask: Callable[[], Any]) -> None:
        """Send a request that waits for the creation, and return when that is queued."""
        self._request = threading.Thread(target=self._ask, args=[ask])
        self._request.start()
        wait_until(lambda: self._ids, 30)

    def _ask(self, ask: Callable[[], Any]) -> None:
        try:
            ask()
        finally:
            connections.close_all()

    def release(self) -> None:
        self._hosts._submit = self._run  # type: ignore[method-assign]
        for key in self._ids:
            self._run("workspaces.tasks.run_operation", (key,), {"queue": self._hosts.runtime.queue_name})
        self._hosts.settle_across_deaths()
        self._request.join(30)


def is_moved(moving: Moving) -> bool:
    return (
        moving.move.state == MoveState.COMMITTED
        and not Operation.objects.filter(workspace_id=moving.id, state__in=LIVE).exists()
    )


@pytest.mark.parametrize("made_of", ["fork", "snapshot"])
def test_machines_are_made_where_they_were_to_be_made(moving: Moving, made_of: str) -> None:
    """A creation from a snapshot waits for a thread of its host while the workspace of the snapshot moves away."""
    path, body = f"/workspace/{moving.id}/fork", {}
    if made_of == "snapshot":
        answer = moving.api.post(f"/workspace/{moving.id}/snapshot", {"name": "kept"})
        assert answer.status_code in (200, 201, 202), answer.content
        path, body = "/workspace", {"name": "copy", "mode": "permanent", "snapshot": Snapshot.objects.get().pk}
    held = HeldCreations(moving)
    held.request(lambda: moving.api.post(path, body))
    wait_until(lambda: not Operation.objects.filter(workspace_id=moving.id, state__in=LIVE).exists(), 30)
    moving.begin()
    wait_until(lambda: is_moved(moving), 30)
    moving.hosts.reconcile()
    held.release()
    copy = Workspace.objects.exclude(pk=moving.id).get()
    assert (copy.status, copy.error_message) == (Status.RUNNING, "")
    moving.finish()
    moving.hosts.reconcile()
    where = [(moving.hosts.driver, 0), (moving.hosts.second_driver, int(made_of == "snapshot"))]
    assert [len(driver.inventory().snapshots) for driver, _ in where] == [number for _, number in where]


def test_nothing_is_committed_before_the_machine_is_on_the_disk(
    moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the commit the source removes the only other copy."""
    seen: list[str] = []
    secure = moving.hosts.second_driver.sync_machine

    def fail_once(machine_id: str) -> None:
        secure(machine_id)
        seen.append(Arrival.objects.get().state)
        if len(seen) == 1:
            raise BackendUnavailable("The disk does not answer.")

    monkeypatch.setattr(moving.hosts.second_driver, "sync_machine", fail_once)
    moving.begin()
    assert moving.finish().state == MoveState.COMMITTED
    assert seen == [ArrivalState.RECEIVING, ArrivalState.RECEIVING]
    assert moving.found() == (NOTE, NOTE)


def test_one_that_powers_off_during_its_move_stays_off(moving: Moving) -> None:
    """It would at any other time."""
    off: list[str] = []

    def power_off(offer_id: str) -> None:
        if not off:
            off.append(offer_id)
            moving.hosts.driver._stop_machine(moving.id, StopReason.SHUTDOWN)

    moving.hosts.second_transfers.before_fetch = power_off
    moving.begin()
    move = moving.finish()
    assert (move.state, moving.row.status, moving.row.last_exit_reason) == (
        MoveState.FAILED,
        Status.STOPPED,
        "shutdown",
    )


def test_what_moves_is_not_metered_when_it_stands_still(moving: Moving) -> None:
    """Its usage is written before the commit, after which its host may not."""
    host = moving.hosts.runtime.host_id
    assert moving.id in meter_targets(host)
    Workspace.objects.update(status=Status.MOVING)
    assert meter_targets(host) == {}
    Workspace.objects.update(status=Status.RUNNING)


def test_a_policy_that_changes_during_a_move_is_there_before_it_runs(moving: Moving) -> None:
    """The target made the machine with the former one."""
    moving.hosts.holds_commits = True
    moving.begin()
    wait_until(lambda: Arrival.objects.filter(state=ArrivalState.READY).exists(), 30)
    assert moving.api.put(f"/workspace/{moving.id}/network", {"allow_internet": False}).status_code == 200
    moving.hosts.holds_commits = False
    moving.finish()
    assert moving.row.status == Status.RUNNING
    assert not moving.row.network_stale
    assert not moving.hosts.second_driver.policy_of(moving.id).allow_internet
