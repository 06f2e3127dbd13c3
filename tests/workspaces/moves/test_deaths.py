"""Deaths of both hosts in each step of a move: one machine in the end, nothing left over, and the owner can go on.

What does not begin from a running workspace, and faults that others are like, is a campaign.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.fakehost import Died
from tests.threads import wait_until
from tests.workspaces.faults.injected import FAULTS, Fault, Scene
from tests.workspaces.moves.conftest import NOTE, Moving
from tests.workspaces.moves.pair import PairOfHosts
from tests.workspaces.workspace_states import bring
from vmbackend.driver import MachineState
from workspaces.host.steps.move import MOVE_STEPS
from workspaces.models.move import MoveState
from workspaces.promised import prove_promises
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)

BEGINS = [Status.RUNNING, Status.SLEEPING, Status.STOPPED]
# The other faults end the machine or Redis, which is no matter of a step.
OF_STEPS = [fault for fault in FAULTS if fault.name not in ("the machine is killed", "Redis is away")]
STATES = {
    Status.RUNNING: MachineState.RUNNING,
    Status.SLEEPING: MachineState.ASLEEP,
    Status.STOPPED: MachineState.OFF,
}
SHOWN = ("vmhost dies", "raises for good")
MADE = ("begin_receiving", "receive_snapshot", "prepare", "sleep_on")


def inconsistencies(moving: Moving, begins: Status) -> list[str]:
    """Everything that is not as it shall be once a move has ended, however."""
    moving.hosts.reconcile()
    moving.hosts.settle_across_deaths()
    row, hosts = moving.row, moving.hosts
    on_second = row.host_id == hosts.second.host_id
    here, there = (hosts.second_driver, hosts.driver) if on_second else (hosts.driver, hosts.second_driver)
    found = [f"it is {row.status}"] if row.status != begins else []
    if here.state(row.pk) is not STATES[begins]:
        found.append(f"its machine is {here.state(row.pk)}")
    if row.pk in there.inventory().ids() or here.kept_orphans() or there.kept_orphans():
        found.append("a copy is left")
    if here.inventory().snapshots or there.inventory().snapshots or here.received_ids() or there.received_ids():
        found.append("a snapshot is left")
    if on_second != (moving.move.state == MoveState.COMMITTED):
        found.append("it is where it was not committed to")
    if begins is not Status.STOPPED and moving.found() != (NOTE, NOTE):
        found.append(f"it has {moving.found()}")
    return found + ["the counters drifted"] * prove_promises()


@pytest.mark.parametrize(
    ("begins", "step", "fault"),
    [
        pytest.param(
            *(begins, step, fault),
            id=f"{begins}-{step}-{fault.name}",
            marks=[] if begins is Status.RUNNING and fault.name in SHOWN else [pytest.mark.campaign],
        )
        for begins, (step, _), fault in product(BEGINS, MOVE_STEPS, OF_STEPS)
    ],
)
def test_the_source_fails_at_a_step(moving: Moving, begins: Status, step: str, fault: Fault) -> None:
    if begins is not Status.RUNNING:
        bring(moving.api, moving.hosts, moving.id, begins)
    with pytest.MonkeyPatch.context() as patch:
        scene = Scene(moving.hosts, patch, "move", step, moving.id)
        fault.arrange(scene)
        moving.hosts.holds_commits = step == "commit"
        moving.begin()
        wait_until(lambda: scene.happened, 60)
        moving.hosts.holds_commits = False
        move = moving.finish()
    assert not fault.cured or move.state == MoveState.COMMITTED
    if fault.name == "vmhost dies every time" and moving.row.status == Status.SLEEPING:
        begins = Status.SLEEPING  # it slept for the move, and wakes with the next request
    assert inconsistencies(moving, begins) == []


def dying(hosts: PairOfHosts, method: str, died: list[bool], *, after: bool) -> Callable[..., Any]:
    """Return the second driver's method, in which its process dies once, before or after its work."""
    work = getattr(hosts.second_driver, method)

    def die(*args: Any, **kwargs: Any) -> Any:
        if died:
            return work(*args, **kwargs)
        died.append(True)
        if after:
            work(*args, **kwargs)
        raise Died

    return die


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("method", MADE)
@pytest.mark.parametrize(
    "begins", [pytest.param(each, marks=[pytest.mark.campaign] * (each != Status.RUNNING)) for each in BEGINS]
)
def test_the_target_dies_at_its_work(
    moving: Moving, monkeypatch: pytest.MonkeyPatch, begins: Status, method: str, after: bool
) -> None:
    if begins is not Status.RUNNING:
        bring(moving.api, moving.hosts, moving.id, begins)
    if begins is Status.STOPPED and method == "sleep_on":
        pytest.skip("there is no memory")
    if begins is not Status.RUNNING and method == "begin_receiving":
        pytest.skip("nothing is copied before the machine stands still")
    died: list[bool] = []
    monkeypatch.setattr(moving.hosts.second_driver, method, dying(moving.hosts, method, died, after=after))
    moving.begin()
    wait_until(lambda: died, 30)
    moving.hosts.restart_second()
    assert moving.finish().state == MoveState.COMMITTED
    assert inconsistencies(moving, begins) == []
