"""Machines end while events of their processes are late, lost, or those of a process before."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.threads import wait_until
from tests.workspaces.faults import fault_cases
from tests.workspaces.faults.fault_cases import CASES
from tests.workspaces.faults.injected import Scene
from vmbackend.driver import Event, EventKind, MachineEnd, StopReason
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.host.reconcile import machines
from workspaces.models import Workspace
from workspaces.models.workspace import RestartPolicy

pytestmark = pytest.mark.django_db(transaction=True)
RESTART = next(case for case in CASES if case.name == "restart")


@pytest.fixture
def running(api: Caller, vmhost: FakeHost) -> Callable[..., str]:
    """A running workspace."""
    return lambda **fields: fault_cases.machine(vmhost, api.account, **fields).pk


@contextmanager
def held_events(vmhost: FakeHost) -> Iterator[None]:
    """What ends in the block is not reported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vmhost.driver._store, "post", lambda *_, **__: None)
        yield


@pytest.fixture
def unprocessed(vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Machines of whose end libvirt alone knows: to it a panic and a power-off are the same."""
    made: list[str] = []
    last_end = vmhost.driver.last_end

    def as_observed(machine_id: str) -> MachineEnd:
        end = last_end(machine_id)
        return replace(end, reason=StopReason.SHUTDOWN, is_final=False) if machine_id in made else end

    monkeypatch.setattr(vmhost.driver, "last_end", as_observed)
    yield made
    made.clear()


def report(vmhost: FakeHost, made: str, reason: StopReason) -> None:
    vmhost.runtime._events.put(Event(made, EventKind.STOPPED, reason))


def exits(made: str) -> tuple[str, str, int]:
    row = Workspace.objects.get(pk=made)
    return row.status, row.last_exit_reason, row.restart_count


def restart_before_complete(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch, happens: Callable[[str], None]
) -> str:
    """A restart whose new process ends before its last step, which is not reported."""
    made = fault_cases.begin(vmhost, api.account, RESTART)
    Workspace.objects.update(restart_policy=RestartPolicy.ON_FAILURE)
    scene = Scene(vmhost, monkeypatch, RESTART.kind, "complete", made)

    def end() -> None:
        wait_until(lambda: not vmhost.driver._store.has_events())  # that of the process before is reported
        with held_events(vmhost):
            happens(made)

    scene.before(end)
    vmhost.release_tasks()
    vmhost.settle()
    return made


def test_a_panic_that_is_not_reported_at_the_end_of_a_restart_is_no_shutdown(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch, unprocessed: list[str]
) -> None:
    """The event of the process that the restart ended has come; that of the last one comes after the restart."""

    def panic(made: str) -> None:
        unprocessed.append(made)
        vmhost.driver.panic(made)

    made = restart_before_complete(api, vmhost, monkeypatch, panic)
    assert exits(made) == ("running", "", 0)
    unprocessed.clear()
    report(vmhost, made, StopReason.PANICKED)
    wait_until(lambda: exits(made)[0] == "stopped")
    assert exits(made) == ("stopped", "panicked", 1)


def test_an_event_that_a_restart_has_overtaken_says_nothing_of_the_next_process(
    api: Caller, vmhost: FakeHost, running: Callable[..., str]
) -> None:
    made = running(restart_policy=RestartPolicy.ON_FAILURE)
    with held_events(vmhost):
        assert api.post(f"/workspace/{made}/restart").status_code == 200
        vmhost.driver.kill(made)
    report(vmhost, made, StopReason.SHUTDOWN)  # of the process that the restart ended
    wait_until(lambda: exits(made)[0] == "stopped")
    assert exits(made) == ("stopped", "crashed", 1)


def test_an_event_of_an_earlier_process_waits_for_that_of_the_last(
    api: Caller, vmhost: FakeHost, running: Callable[..., str], unprocessed: list[str]
) -> None:
    made, other = running(restart_policy=RestartPolicy.ON_FAILURE), running()
    with held_events(vmhost):
        assert api.post(f"/workspace/{made}/restart").status_code == 200
        unprocessed.append(made)
        vmhost.driver.panic(made)
    report(vmhost, made, StopReason.CRASHED)
    vmhost.driver.kill(other)
    wait_until(lambda: exits(other)[0] == "stopped")  # so the one before it was handled
    assert exits(made) == ("running", "", 0)
    unprocessed.clear()
    report(vmhost, made, StopReason.PANICKED)
    wait_until(lambda: exits(made)[0] == "stopped")
    assert exits(made) == ("stopped", "panicked", 1)


def test_reconcile_settles_an_end_whose_event_never_comes(
    vmhost: FakeHost, running: Callable[..., str], unprocessed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, other = running(), running()
    monkeypatch.setattr(machines, "REPORT_SECONDS", 0.2)
    with held_events(vmhost):
        unprocessed.extend([made, other])
        vmhost.driver.kill(made)
        vmhost.driver.kill(other)
        assert reconcile_rows_and_machines(vmhost.runtime) == 2
    assert exits(made) == exits(other) == ("stopped", "shutdown", 0)  # as libvirt has it


def test_reconcile_waits_for_reports_that_come_a_moment_later(
    vmhost: FakeHost, running: Callable[..., str], unprocessed: list[str]
) -> None:
    made = running(restart_policy=RestartPolicy.ON_FAILURE)
    with held_events(vmhost):
        unprocessed.append(made)
        vmhost.driver.panic(made)
        threading.Timer(0.2, unprocessed.clear).start()
        reconcile_rows_and_machines(vmhost.runtime)
    assert exits(made) == ("stopped", "panicked", 1)


@pytest.mark.parametrize("happens", ["kill", "panic"])
def test_an_end_at_the_end_of_a_restart_is_settled_without_its_event(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    """The restart has ended the process before, whose event came in time."""
    made = restart_before_complete(api, vmhost, monkeypatch, getattr(vmhost.driver, happens))
    assert exits(made) == ("stopped", {"kill": "crashed", "panic": "panicked"}[happens], 1)
