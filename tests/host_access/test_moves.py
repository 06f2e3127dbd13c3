"""Roles of hosts and moves: each of both hosts does its half, and a third one sees nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from django.db import DatabaseError, transaction
from django.utils import timezone

from common.host_access import policies
from common.host_access.roles import create_host_role, drop_host_role
from tests.callers import Caller
from tests.host_access.confined_host import logged_in
from tests.host_access.test_role_attacks import is_refused
from tests.workspaces.rows import make_workspace
from vmbackend.driver import MachineIdentity
from vmbackend.models import Host, new_host_id
from workspaces.crud.services import remove_workspace_row
from workspaces.models import Activity, Arrival, Move, Operation, Snapshot, Workspace
from workspaces.models.move import MoveState
from workspaces.moves.rows import arrival_ready, arrival_received, move_left, move_offer
from workspaces.snapshot_rows import snapshot_insert
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Scene:
    """A workspace that moves from one of three hosts to another."""

    source: str
    target: str
    third: str
    workspace: Workspace
    move: Move


@pytest.fixture
def scene(api: Caller) -> Iterator[Scene]:
    policies.apply_grants()
    ids = [new_host_id() for _ in range(3)]
    for number, host in enumerate(ids):
        Host.objects.create(id=host, name=f"host-{number}", subnet=f"10.20{number}.0.0/20")
        create_host_role(host)
    row = make_workspace(api.account, host_id=ids[0], ip="10.200.0.5", status=Status.MOVING, started_at=None)
    move = Move.objects.create(
        workspace_id=row.pk, account_id=row.account_id, operation_id="op_x", source_id=ids[0], target_id=ids[1],
        source_name="a", target_name="b", epoch=row.epoch, from_status="stopped", memory=False, address="10.201.0.9",
        counts_as="stopped", memory_mb=1, disk_mb=1, actor="a", reason="b",
    )  # fmt: skip
    Arrival.objects.create(move=move, target_id=ids[1])
    yield Scene(*ids, row, move)
    for host in ids:
        drop_host_role(host)


def test_each_host_does_its_half(scene: Scene) -> None:
    with logged_in(scene.source):
        move = Move.objects.get()
        assert move_offer(move, move.pk, 5)
        assert Arrival.objects.get().received == []
    with logged_in(scene.target):
        row = Workspace.objects.select_related("namespace", "account").get()
        assert (row.pk, row.namespace.account_id) == (scene.workspace.pk, scene.workspace.account_id)
        arrival = Arrival.objects.select_related("move").get()
        assert [offer["id"] for offer in arrival.move.offers] == [scene.move.pk]
        arrival_received(arrival, scene.move.pk, 5)
        arrival_ready(arrival, MachineIdentity("10.201.0.9", "ssh-ed25519 x", 5))
    with logged_in(scene.source):
        assert Arrival.objects.get().state == "ready"
        Move.objects.update(state=MoveState.FAILED)
        move_left(Move.objects.get())
    assert Move.objects.get().left_at is not None


def test_the_target_has_no_right_to_what_is_not_its_own_yet(scene: Scene) -> None:
    refused = {
        "changes it": "UPDATE workspaces_workspace SET status = 'lost'",
        "deletes it": "DELETE FROM workspaces_workspace",
        "takes it": f"UPDATE workspaces_workspace SET host_id = '{scene.target}'",
        "raises its epoch": "UPDATE workspaces_workspace SET epoch = 9",
        "ends the move": "UPDATE workspaces_move SET state = 'committed'",
        "moves another": "UPDATE workspaces_move SET workspace_id = 'ws_x'",
        "makes a move": "INSERT INTO workspaces_move (id) VALUES ('mv_x')",
        "takes an arrival": "INSERT INTO workspaces_arrival (move_id) VALUES ('mv_x')",
    }
    with logged_in(scene.target) as made:
        assert [name for name, statement in refused.items() if not is_refused(made, statement)] == []
    assert Workspace.objects.get().status == Status.MOVING


def test_it_loses_sight_of_it_with_the_end_of_the_move(scene: Scene) -> None:
    Move.objects.update(state=MoveState.FAILED)
    with logged_in(scene.target):
        assert Move.objects.count() == 1
        assert Workspace.objects.count() == 0


def test_the_source_does_not_write_what_is_the_targets(scene: Scene) -> None:
    with logged_in(scene.source) as made:
        assert is_refused(made, "UPDATE workspaces_arrival SET state = 'ready'")
        assert is_refused(made, f"UPDATE workspaces_move SET target_id = '{scene.third}'")
        assert is_refused(made, "UPDATE workspaces_move SET address = '10.200.0.7'")


def test_a_third_host_sees_nothing_of_it(scene: Scene) -> None:
    with logged_in(scene.third) as made:
        assert [model.objects.count() for model in (Workspace, Move, Arrival)] == [0, 0, 0]
        assert is_refused(made, "UPDATE workspaces_move SET state = 'failed'")
    with logged_in(scene.third), pytest.raises(DatabaseError):
        Move.objects.create(workspace_id="x")


def has_moved(scene: Scene) -> Workspace:
    """Give the workspace to the target, as the commit does."""
    Move.objects.update(state=MoveState.COMMITTED)
    Workspace.objects.update(host_id=scene.target, ip="10.201.0.9", status=Status.STOPPED)
    return Workspace.objects.get()


def test_the_target_deletes_what_has_moved_to_it(scene: Scene) -> None:
    row = has_moved(scene)
    Operation.objects.create(
        workspace=row, account_id=row.account_id, kind="move", queue=f"host.{scene.source}", state="succeeded",
        actor="a", deadline_at=timezone.now(),
    )  # fmt: skip
    Activity.objects.create(workspace_id=row.pk, account_id=row.account_id, action="moved", actor="a")
    with logged_in(scene.target):
        row = Workspace.objects.select_related("account", "namespace").get()
        with transaction.atomic():
            remove_workspace_row(row)
    assert not Workspace.objects.exists()


def test_the_source_ends_what_it_keeps_of_one_that_has_moved(scene: Scene) -> None:
    """Such as a snapshot that was deleted meanwhile, and one for forks."""
    row = has_moved(scene)
    row.host_id = scene.source
    kept = snapshot_insert(row, Operation(), purpose="kept", name="x", memory=False, deleted_at=timezone.now())
    with logged_in(scene.source) as made:
        assert Snapshot.objects.filter(pk=kept.pk).update(removed_at=timezone.now()) == 1
        assert is_refused(made, f"UPDATE workspaces_snapshot SET host_id = '{scene.target}'")
    other = make_workspace(scene.workspace.account, host_id=scene.third, name="other", ip="10.202.0.7")
    with logged_in(scene.source) as made:
        assert is_refused(made, f"UPDATE workspaces_snapshot SET workspace_id = '{other.pk}'")


@pytest.mark.parametrize("state", ["committed", "live"])
def test_a_source_does_not_make_a_move_what_it_is_not(scene: Scene, state: str) -> None:
    """Neither committed, which is the control plane's, nor live again, which takes room of the target."""
    Move.objects.update(state=MoveState.FAILED if state == "live" else MoveState.LIVE)
    with logged_in(scene.source) as made:
        assert is_refused(made, f"UPDATE workspaces_move SET state = '{state}'")
        assert is_refused(made, "UPDATE workspaces_move SET state = 'odd'")
    assert Move.objects.get().state != state
