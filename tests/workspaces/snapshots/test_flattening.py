"""The background copies of stale disks: in which order, when not, and that operations do not wait for them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.threads import wait_until
from tests.workspaces.snapshots.conftest import Parent
from vmbackend.driver import MachineState
from vmbackend.errors import BackendUnavailable
from workspaces.host import flattening
from workspaces.host.flattening import Flattening
from workspaces.models import Operation
from workspaces.models.operation import OperationState

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def copies(vmhost: FakeHost) -> Iterator[Flattening]:
    """Return the copies of the running vmhost, which begins no round by itself."""
    yield vmhost.runtime.flattening
    vmhost.driver.delays.pop("flatten", None)
    vmhost.driver.crash_hook = None


@pytest.fixture
def begun(vmhost: FakeHost) -> list[float]:
    """When each copy had begun."""
    times: list[float] = []
    vmhost.driver.crash_hook = lambda point: times.append(time.monotonic()) if point == "flatten:half" else None
    return times


def test_disks_are_copied_one_after_the_other_the_smallest_first(
    parent: Parent, copies: Flattening, caplog: pytest.LogCaptureFixture
) -> None:
    driver, others = parent.vmhost.driver, [parent.create()["id"] for _ in range(2)]
    driver.stale.update({parent.id: 30, others[0]: 10, others[1]: 20, "nobody": 5})
    with caplog.at_level(logging.INFO, logger=flattening.__name__):
        assert copies.run_once() == 3
    done = [str(record.args[0]) for record in caplog.records if isinstance(record.args, tuple) and record.args]
    assert done == [others[0], others[1], parent.id]
    assert set(driver.stale) == {"nobody"}
    assert copies.run_once() == 0


def test_an_error_hinders_no_other_disk_and_is_not_repeated_at_once(parent: Parent, copies: Flattening) -> None:
    driver, other = parent.vmhost.driver, parent.create()["id"]
    driver.stale.update({parent.id: 1, other: 2})
    driver.fail_next("flatten", BackendUnavailable("The copy failed."))
    assert copies.run_once() == 1
    assert set(driver.stale) == {parent.id}
    assert copies.run_once() == 0
    copies._next[parent.id] = (0.0, 600.0)
    assert copies.run_once() == 1


def test_a_disk_without_room_for_its_copy_stays(parent: Parent, copies: Flattening) -> None:
    driver, other = parent.vmhost.driver, parent.create()["id"]
    driver.stale.update({parent.id: driver.capacity().disk_free_mb + 1, other: 1})
    assert copies.run_once() == 1
    assert set(driver.stale) == {parent.id}


def test_nothing_is_copied_while_the_host_lacks_its_reserve(parent: Parent, copies: Flattening) -> None:
    driver, room = parent.vmhost.driver, [True]
    made = Flattening(parent.vmhost.runtime.host_id, driver, has_room=lambda: room[0])
    driver.stale[parent.id] = 1
    driver.delays["flatten"] = 60.0
    room[0] = False
    assert made.run_once() == 0
    room[0] = True
    driver.crash_hook = lambda _point: room.__setitem__(0, False)  # it is gone while the copy is made
    assert made.run_once() == 0
    assert driver.stale == {parent.id: 1}


def test_machines_that_sleep_or_that_an_operation_works_on_are_left(parent: Parent, copies: Flattening) -> None:
    driver, api = parent.vmhost.driver, parent.api
    driver.stale[parent.id] = 1
    api.post(f"/workspace/{parent.id}/sleep")
    assert driver.state(parent.id) is MachineState.ASLEEP
    assert copies.run_once() == 0
    api.post(f"/workspace/{parent.id}/start")
    live = Operation.objects.filter(workspace_id=parent.id).first()
    assert live is not None
    Operation.objects.filter(pk=live.pk).update(state=OperationState.RUNNING, finished_at=None)
    assert copies.run_once() == 0
    Operation.objects.filter(pk=live.pk).update(state=live.state, finished_at=live.finished_at)
    assert copies.run_once() == 1


def test_an_operation_ends_the_copy_of_its_machine_at_once(
    parent: Parent, copies: Flattening, begun: list[float]
) -> None:
    driver = parent.vmhost.driver
    driver.stale[parent.id] = 1
    driver.delays["flatten"] = 60.0
    assert copies.begin()
    wait_until(lambda: begun)
    assert not copies.begin(), "one at a time"
    before = time.monotonic()
    parent.keep(name="meanwhile")
    assert time.monotonic() - before < 30
    assert driver.stale == {parent.id: 1}
    assert copies._copy is None


def test_an_operation_of_another_workspace_leaves_it(parent: Parent, copies: Flattening, begun: list[float]) -> None:
    driver, other = parent.vmhost.driver, parent.create()["id"]
    driver.stale[parent.id] = 1
    driver.delays["flatten"] = 60.0
    copies.begin()
    wait_until(lambda: begun)
    assert parent.api.post(f"/workspace/{other}/stop").status_code == 200
    assert copies._copy is not None
    assert copies._copy.workspace_id == parent.id
    copies.stop()
    assert copies._copy is None
    assert not copies.begin(), "the process ends"


def test_an_operation_is_retried_if_the_copy_does_not_end(
    parent: Parent, copies: Flattening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flattening, "END_SECONDS", 0.1)
    hangs, reached = threading.Event(), threading.Event()
    driver = parent.vmhost.driver

    def hang(point: str) -> None:
        if point == "flatten:half":
            reached.set()
            hangs.wait(60)

    driver.crash_hook = hang
    driver.stale[parent.id] = 1
    copies.begin()
    assert reached.wait(60)
    with pytest.raises(BackendUnavailable):
        copies.give_up(parent.id)
    hangs.set()
    wait_until(lambda: copies._copy is None)
    copies.give_up(parent.id)


def test_reconcile_begins_a_round(parent: Parent, api: Caller) -> None:
    driver = parent.vmhost.driver
    driver.stale[parent.id] = 1
    parent.vmhost.restart()
    wait_until(lambda: not driver.stale)


def test_the_reserve_of_the_disk_is_kept_free(vmhost: FakeHost) -> None:
    guard = vmhost.runtime.disk_guard
    guard._reserve_mb, guard._free = 100, lambda _folder: 100
    assert guard.has_reserve
    guard._free = lambda _folder: 99
    assert not guard.has_reserve
