"""kill -9 of vmhost before every step of every operation, on real machines.

One round for each place in the lists of steps: one workspace for each kind of operation, each held before its step of
that place; then the one vmhost that carries all of them dies. Afterwards nothing is left over (the fixture `clean`),
and each workspace is in a state that its owner can act on: the next round begins with the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from tests.vm.client import Api, until
from tests.vm.conftest import Witness, assert_unnoticed
from tests.vm.instances import TestInstance
from tests.vm.onhost import SETTLE_SECONDS, assert_nothing_is_left_over
from tests.vm.sleep_command import SleepCommand
from workspaces.host.engine import KINDS

pytestmark = [pytest.mark.vm, pytest.mark.campaign, pytest.mark.usefixtures("clean")]
# Operations on snapshots begin from more than a state: `test_snapshots.py` has their deaths.
TOLD = {kind: KINDS[kind].steps for kind in KINDS if kind not in ("snapshot", "restore", "fork", "move")}
ROUNDS = max(len(steps) for steps in TOLD.values())
PREPARED_AT_ONCE = 3  # machines that boot side by side
# What an operation begins from, where that is not `running`.
FROM = {"start": "stopped", "resume": "paused", "wake": "sleeping"}
KEPT = ("running", *FROM.values())


@dataclass
class Stock:
    """Workspaces of the rounds before."""

    ids: list[str] = field(default_factory=list)

    def assign(self, api: Api, kinds: Iterable[str]) -> dict[str, str | None]:
        """A workspace for each kind of operation, one in the state from which it begins where there is one; None where
        none is left. They are taken out.
        """
        states = {workspace_id: api.get(workspace_id)["status"] for workspace_id in self.ids}
        self.ids = []
        found: dict[str, str | None] = {}
        for kind in kinds:
            wanted = FROM.get(kind, "running")
            found[kind] = next((each for each, state in states.items() if state == wanted), None)
            states.pop(found[kind] or "", None)
        for kind in [kind for kind, taken in found.items() if taken is None and states]:
            found[kind] = states.popitem()[0] if states else None
        self.ids = list(states)
        return found


@pytest.fixture(scope="module")
def stock(api: Api, witness: Witness) -> Iterator[Stock]:
    yield Stock()
    api.delete_all(keep=[witness.id])


@pytest.fixture
def clean(instance: TestInstance, api: Api, witness: Witness, stock: Stock) -> Iterator[None]:
    """As for the other tests, but that the stock stays for the next round."""
    yield
    instance.wait_until_running()
    assert_unnoticed(instance, api, witness)
    api.delete_all(keep=[witness.id, *stock.ids])
    assert_nothing_is_left_over(instance, api)


def asks(api: Api, sleep_command: SleepCommand, kind: str, workspace_id: str, size_mb: int) -> None:
    """Request one operation; the response is not checked."""
    path = f"/workspace/{workspace_id}"
    others: dict[str, Callable[[], object]] = {
        "sleep": lambda: sleep_command.ask(workspace_id),
        "wake": lambda: api.http.post(f"{path}/start"),
        "resize": lambda: api.http.put(f"{path}/overlay/resize", json={"size_mb": size_mb}),
        "destroy": lambda: api.http.delete(f"{path}/lifecycle"),
        "delete": lambda: api.http.delete(path),
    }
    others.get(kind, lambda: api.http.post(f"{path}/{kind}"))()


def prepared(api: Api, sleep_command: SleepCommand, kind: str, workspace_id: str | None) -> str:
    """A workspace from which an operation of this kind can begin: this one, or a new one."""
    made: str = workspace_id or api.create()["id"]
    wanted, status = FROM.get(kind, "running"), api.get(made)["status"]
    if status == wanted:
        return made
    if status != "running":
        api.power(made, "start")
    if wanted == "sleeping":
        sleep_command.sleep(made)
    elif wanted != "running":
        api.power(made, {"stopped": "stop", "paused": "pause"}[wanted])
    return made


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("place", range(ROUNDS))
def test_vmhost_dies_before_every_step(
    instance: TestInstance, api: Api, sleep_command: SleepCommand, stock: Stock, place: int
) -> None:
    points = {kind: steps[place][0] for kind, steps in TOLD.items() if place < len(steps)}
    size_mb = 80 + 16 * place  # larger than in the rounds before
    assigned = stock.assign(api, [kind for kind in points if kind != "create"])
    with ThreadPoolExecutor(len(points)) as pool:
        with ThreadPoolExecutor(PREPARED_AT_ONCE) as few:
            made = few.map(lambda kind: prepared(api, sleep_command, kind, assigned[kind]), assigned)
            rows = dict(zip(assigned, made, strict=True))
        with instance.held(*(f"{kind}.{step}" for kind, step in points.items())):
            for kind, workspace_id in rows.items():
                pool.submit(asks, api, sleep_command, kind, workspace_id, size_mb)
            if "create" in points:
                rows["create"] = api.begin_create()
            for kind, step in points.items():
                instance.wait_for_step(rows[kind], f"{kind}.{step}")
            instance.kill("vmhost")
    for kind, workspace_id in rows.items():
        if assert_can_be_acted_on(api, kind, workspace_id) in KEPT:
            stock.ids.append(workspace_id)


def assert_can_be_acted_on(api: Api, kind: str, workspace_id: str) -> str:
    """Returns the state in which it is; `deleted` where it is none."""
    if kind == "delete":
        until(lambda: api.is_gone(workspace_id), SETTLE_SECONDS + 30, "it is deleted")
        return "deleted"
    row = api.settles(workspace_id)
    assert row["ready"] is (row["status"] == "running"), (kind, row)
    if row["status"] == "running":
        # Beside a dozen machines that boot, one that has just booted may not answer yet.
        answer = api.patiently("POST", f"/workspace/{workspace_id}/exec", json={"cmd": "echo works"})
        assert answer["stdout"].strip() == "works", answer
    return str(row["status"])
