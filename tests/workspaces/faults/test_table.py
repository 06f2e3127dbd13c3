"""The fault table: every step of every operation against everything that may happen there.

The steps are those of the code (`engine.KINDS`). After at most two passes of reconcile nothing is left over or doubled,
the row and the machine say the same, the activity says what went wrong, and the owner can go on, and delete.

`make test` has a sixth of the table's cells, in which each operation meets each fault, and each of its steps one;
the others are a campaign.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest
from _pytest.mark import ParameterSet

from accounts.models import Account
from tests.callers import Caller
from tests.fakehost import Died, FakeHost
from tests.run_extent import campaign_after
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.conftest import Tally
from tests.workspaces.faults.fault_cases import CASES, Case
from tests.workspaces.faults.injected import AFTER_THE_END, FAULTS, PASSING, Fault, Scene
from vmbackend.errors import BackendUnavailable
from workspaces.host import engine
from workspaces.models import Workspace

pytestmark = pytest.mark.django_db(transaction=True)
ONE_IN = 7


def cells() -> Iterator[ParameterSet]:
    """Each case and fault with the steps of `make test`, which move on by one with each fault, and with the others."""
    for (row, case), (column, fault) in product(enumerate(CASES), enumerate(FAULTS)):
        begin = (row + column) % len(case.steps)
        parts: dict[bool, list[str]] = {True: [], False: []}
        for place, step in enumerate(case.steps):
            parts[(place - begin) % ONE_IN == 0].append(step)
        for first, steps in parts.items():
            marks = [pytest.mark.campaign] * (not first)
            if steps:
                yield pytest.param(case, fault, steps, marks=marks, id=f"{case.name}-{fault.name}-{'+'.join(steps)}")


def name_of(value: Case | Fault) -> str:
    return value.name


def outcome(case: Case, key: str) -> str | None:
    status = Workspace.objects.filter(pk=key).values_list("status", flat=True).first()
    return None if status == case.ends else f"it is {status} and should be {case.ends}"


def walk(account: Account, host: FakeHost, patch: pytest.MonkeyPatch, case: Case, step: str, fault: Fault) -> list[str]:
    """One cell: what is not as it shall be."""
    scene = Scene(host, patch, case.kind, step)
    scene.made = fault_cases.begin(host, account, case)
    fault.arrange(scene)
    host.release_tasks()
    host.settle_across_deaths()
    host.redis_away = False
    fault_cases.come_to_rest(host)
    if not scene.happened:
        return ["it was not reached"]
    wrong = fault_cases.inconsistencies(host, scene.made)
    differs = outcome(case, scene.made)
    if fault.cured and differs:
        wrong.append(differs)
    if fault.sentences and differs and not fault_cases.activity_mentions(scene.made, *fault.sentences):
        wrong.append("the activity does not say why")
    patch.undo()
    return wrong + fault_cases.act(host, scene.made, operate=bool(differs))


def test_every_kind_of_operation_is_in_the_table() -> None:
    # A move needs two hosts: tests/workspaces/moves/test_deaths.py.
    assert {case.kind for case in CASES} == set(engine.KINDS) - {"move"}


def test_every_step_and_every_fault_of_each_operation_is_in_the_part_that_is_no_campaign() -> None:
    parts = [(each.values, pytest.mark.campaign in each.marks) for each in cells()]
    everything = {(case.name, fault.name, step) for (case, fault, steps), _ in parts for step in steps}
    first = {(case.name, fault.name, step) for (case, fault, steps), later in parts if not later for step in steps}
    assert len(everything) == sum(len(case.steps) for case in CASES) * len(FAULTS)
    assert {(case, step) for case, _, step in first} == {(case, step) for case, _, step in everything}
    assert {(case, fault) for case, fault, _ in first} == {(case, fault) for case, fault, _ in everything}
    assert len(first) < len(everything) / 3


@pytest.mark.parametrize(("case", "fault", "steps"), list(cells()))
def test_nothing_is_left_over_at_any_step(
    api: Caller, vmhost: FakeHost, table: Tally, case: Case, fault: Fault, steps: list[str]
) -> None:
    found: list[str] = []
    for step in steps:
        with pytest.MonkeyPatch.context() as patch:
            wrong = walk(api.account, vmhost, patch, case, step, fault)
        table.enter(case.name, step, fault.name, wrong)
        found += [f"{step}: {sentence}" for sentence in wrong]
    assert found == []


@pytest.mark.parametrize("fault", campaign_after(1, AFTER_THE_END), ids=name_of)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_what_happens_after_the_last_commit_changes_nothing(
    api: Caller, vmhost: FakeHost, table: Tally, case: Case, fault: Fault
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        wrong = walk(api.account, vmhost, patch, case, case.steps[-1], fault)
    table.enter(case.name, case.steps[-1], fault.name, wrong)
    assert wrong == []


# In the middle of the driver's work


def points_of(account: Account, host: FakeHost, case: Case) -> list[str]:
    """The points that an undisturbed operation passes."""
    made = fault_cases.begin(host, account, case)
    passed: list[str] = []
    host.driver.crash_hook = passed.append
    host.release_tasks()
    host.settle()
    host.driver.crash_hook = None
    fault_cases.act(host, made, operate=False)
    return list(dict.fromkeys(passed))


def dies_at(host: FakeHost, point: str) -> None:
    left = [point]

    def hook(at: str) -> None:
        if at in left:
            left.remove(at)
            raise host.begin_death()

    host.driver.crash_hook = hook


def fails_at(host: FakeHost, point: str) -> None:
    host.driver.fail_next(point, BackendUnavailable(PASSING))


def fails_always_at(host: FakeHost, point: str) -> None:
    host.driver.fail_next(point, BackendUnavailable(PASSING), times=3)


IN_THE_MIDDLE = [
    dies_at,
    *(pytest.param(each, marks=pytest.mark.campaign) for each in (fails_at, fails_always_at)),
]


@pytest.mark.parametrize("happens", IN_THE_MIDDLE, ids=lambda value: value.__name__)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_nothing_is_left_over_in_the_middle_of_the_drivers_work(
    api: Caller, vmhost: FakeHost, in_the_driver: Tally, case: Case, happens: Callable[[FakeHost, str], None]
) -> None:
    found: list[str] = []
    for point in points_of(api.account, vmhost, case):
        made = fault_cases.begin(vmhost, api.account, case)
        happens(vmhost, point)
        vmhost.release_tasks()
        fault_cases.come_to_rest(vmhost)
        wrong = fault_cases.inconsistencies(vmhost, made)
        differs = outcome(case, made)
        if happens is not fails_always_at and differs:
            wrong.append(differs)
        elif differs and not fault_cases.activity_mentions(made, PASSING):
            wrong.append("the activity does not say why")
        vmhost.driver.crash_hook = None
        wrong += fault_cases.act(vmhost, made, operate=bool(differs))
        in_the_driver.enter(case.name, point, happens.__name__, wrong)
        found += [f"{point}: {sentence}" for sentence in wrong]
    assert found == []


def test_a_death_while_dying_is_survived(api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """vmhost dies in an operation, and again in the reconcile pass of its next start."""
    made = fault_cases.begin(vmhost, api.account, CASES[0])
    scene = Scene(vmhost, monkeypatch, "create", "wait_ready", made)

    def die() -> None:
        raise Died

    scene.before(die, times=2)
    vmhost.release_tasks()
    fault_cases.come_to_rest(vmhost)
    assert scene.happened == 2
    assert outcome(CASES[0], made) is None
