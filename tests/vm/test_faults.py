"""kill -9 of vmhost before every step of every operation, on real machines.

One round for each place in the lists of steps: one workspace for each kind of operation, each held before its step of
that place; then the one vmhost that carries all of them dies. Afterwards nothing is left over (the fixture `clean`),
and each workspace is in a state that its owner can act on.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.vm.client import Api, until
from tests.vm.instances import TestInstance
from tests.vm.onhost import SETTLE_SECONDS
from tests.vm.sleep_command import SleepCommand, open_sleep_command
from workspaces.host.engine import KINDS
from workspaces.models.operation import OperationKind

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]
ROUNDS = max(len(kind.steps) for kind in KINDS.values())
PREPARED_AT_ONCE = 3  # machines that boot side by side
# What an operation begins from, where that is not `running`.
FROM = {"start": "stop", "resume": "pause", "wake": "sleep"}


def asks(api: Api, sleep_command: SleepCommand, kind: str, workspace_id: str) -> None:
    """Request one operation; the response is not checked."""
    path = f"/workspace/{workspace_id}"
    others: dict[str, Callable[[], object]] = {
        "sleep": lambda: sleep_command.ask(workspace_id),
        "wake": lambda: api.http.post(f"{path}/start"),
        "resize": lambda: api.http.put(f"{path}/overlay/resize", json={"size_mb": 80}),
        "destroy": lambda: api.http.delete(f"{path}/lifecycle"),
        "delete": lambda: api.http.delete(path),
    }
    others.get(kind, lambda: api.http.post(f"{path}/{kind}"))()


def prepared(api: Api, sleep_command: SleepCommand, kind: str) -> str:
    """A workspace from which an operation of this kind can begin."""
    made: str = api.create()["id"]
    before = FROM.get(kind)
    if before == "sleep":
        sleep_command.sleep(made)
    elif before:
        api.power(made, before)
    return made


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", range(ROUNDS))
def test_vmhost_dies_before_every_step(instance: TestInstance, api: Api, place: int) -> None:
    points = {kind: KINDS[kind].steps[place][0] for kind in OperationKind.values if place < len(KINDS[kind].steps)}
    with (
        open_sleep_command(instance.instance, instance.settings) as sleep_command,
        ThreadPoolExecutor(len(points)) as pool,
    ):
        kinds = [kind for kind in points if kind != "create"]
        with ThreadPoolExecutor(PREPARED_AT_ONCE) as few:
            rows = dict(zip(kinds, few.map(lambda kind: prepared(api, sleep_command, kind), kinds), strict=True))
        with instance.held(*(f"{kind}.{step}" for kind, step in points.items())):
            for kind, workspace_id in rows.items():
                pool.submit(asks, api, sleep_command, kind, workspace_id)
            if "create" in points:
                rows["create"] = api.begin_create()
            for kind, step in points.items():
                instance.wait_for_step(rows[kind], f"{kind}.{step}")
            instance.kill("vmhost")
    for kind, workspace_id in rows.items():
        assert_can_be_acted_on(api, kind, workspace_id)


def assert_can_be_acted_on(api: Api, kind: str, workspace_id: str) -> None:
    if kind == "delete":
        until(lambda: api.is_gone(workspace_id), SETTLE_SECONDS + 30, "it is deleted")
        return
    row = api.settles(workspace_id)
    assert row["ready"] is (row["status"] == "running"), (kind, row)
    if row["status"] == "running":
        assert api.output(workspace_id, "echo works") == "works"
