"""Moves between two hosts in both directions that end at once: none waits for the other for ever."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest
from django.db import connections, transaction

from tests.callers import Caller
from tests.hosts.rows import joined_host
from tests.workspaces.rows import make_workspace
from vmbackend.models import Host
from workspaces.models import Move, Operation, Workspace
from workspaces.models.move import MoveState
from workspaces.models.operation import OperationKind
from workspaces.moves.rows import move_end
from workspaces.operations import queue
from workspaces.rows import lock_row
from workspaces.states import Status
from workspaces.transitions import transition

pytestmark = pytest.mark.django_db(transaction=True)


def moving_row(api: Caller, source: Host, target: Host, number: int) -> tuple[Workspace, Operation]:
    """Return a workspace that moves asleep, and its operation."""
    ip = f"10.129.24{number}.9"
    row = make_workspace(api.account, host=source, ip=ip, status=Status.MOVING, started_at=None, name=f"box-{number}")
    operation = queue.enqueue_operation(row, OperationKind.MOVE, actor="a", params={"from": "sleeping", "memory": True})
    Move.objects.create(
        workspace_id=row.pk, account_id=row.account_id, operation_id=operation.pk, source=source, target=target,
        source_name="a", target_name="b", epoch=row.epoch, from_status="sleeping", memory=True, address=ip,
        counts_as="stopped", memory_mb=1, disk_mb=1, actor="a", reason="b",
    )  # fmt: skip
    return row, operation


def test_both_go_back_at_once(api: Caller) -> None:
    one, two = joined_host("one"), joined_host("two")
    both = moving_row(api, one, two, 0), moving_row(api, two, one, 1)
    # Each waits for the other in between, unless that waits for it.
    gate, failed = threading.Barrier(2), list[Exception]()

    def go_back(row: Workspace, operation: Operation) -> None:
        try:
            with transaction.atomic():
                lock_row(row)
                move_end(operation, MoveState.FAILED)
                with suppress(threading.BrokenBarrierError):
                    gate.wait(1)
                transition(row, Status.SLEEPING, leaving=frozenset({Status.MOVING}))
        except Exception as error:
            failed.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=go_back, args=each) for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert set(Workspace.objects.values_list("status", flat=True)) == {Status.SLEEPING}
