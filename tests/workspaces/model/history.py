"""Random histories of workspaces on the fake driver, each step compared with what is expected."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from common.errors import DomainError, InvalidState
from tests.workspaces.model.expected import RUNNING, UP, Expected
from tests.workspaces.model.observed import Observed
from tests.workspaces.test_states import SERVICES
from workspaces.errors import IdleNotSupported, OperationInProgress
from workspaces.host import process as vmhost_process
from workspaces.host.sweep import sweep_due
from workspaces.lifecycle import services as lifecycle
from workspaces.models import Workspace
from workspaces.models.workspace import Mode, RestartPolicy, TtlAction
from workspaces.quota import Amount
from workspaces.resources import services as resources
from workspaces.states import Status

AT_MOST = 2
EXPIRIES = {
    "ttl_expires_at": Expected.ttl_is_over,
    "idle_due_at": Expected.idle_is_over,
    "memory_expires_at": Expected.memory_is_over,
    "restart_due_at": Expected.restart_is_due,
}
REPEATABLE = sorted(set(SERVICES) - {"apply", "resize", "destroy", "delete"})
which = st.integers(0, AT_MOST - 1)


def where_any_is(*statuses: Status) -> Any:
    """A rule for such workspaces only: what would do nothing is not chosen."""
    return precondition(lambda self: any(each.status in statuses for each in self.expected.values()))


POLICIES, ACTIONS = st.sampled_from(list(RestartPolicy)), st.sampled_from(list(TtlAction))


class History(Observed):
    """What owners do, and what happens by itself."""

    # What owners do

    @initialize()
    def begin(self) -> None:
        self.add(Status.RUNNING, RestartPolicy.ON_FAILURE, 0, False)

    @precondition(lambda self: len(self.expected) < AT_MOST)
    @rule(
        status=st.sampled_from([RUNNING, Status.STOPPED, Status.PAUSED, Status.SLEEPING]),
        policy=POLICIES,
        most=st.sampled_from([0, 1]),
        remove=st.booleans(),
    )
    def make(self, status: Status, policy: RestartPolicy, most: int, remove: bool) -> None:
        self.add(status, policy, most, remove)

    @rule(number=which, name=st.sampled_from(REPEATABLE), dies=st.integers(0, 8))
    def run_operation(self, number: int, name: str, dies: int) -> None:
        if found := self.pick(number):
            self.die_at(dies)
            self.asked(*found, name, lambda row: SERVICES[name][0](workspace=row, actor="owner"))

    @rule(number=which, name=st.sampled_from([*REPEATABLE, "destroy"]), dies=st.integers(0, 8))
    def destroy_and_delete(self, number: int, name: str, dies: int) -> None:
        """In one rule, as nothing more comes after them."""
        if found := self.pick(number):
            for last in ("destroy", name, "delete"):
                self.die_at(dies)
                self.asked(*found, last, lambda row, last=last: SERVICES[last][0](workspace=row, actor="owner"))

    def asked(self, key: str, expected: Expected, name: str, ask: Any) -> None:
        outcome = expected.outcome(name)
        try:
            ask(self.row(key))
            refused = None
        except DomainError as exc:
            refused = type(exc)
        assert refused == (outcome if isinstance(outcome, type) else None)
        self.settle_and_restart_machines(but=key)
        if refused is None:
            expected.operation_ended(name)

    @rule(
        number=which, cpus=st.sampled_from([100, 200, 400]), memory=st.sampled_from([128, 256]), dies=st.integers(0, 8)
    )
    def apply(self, number: int, cpus: int, memory: int, dies: int) -> None:
        if found := self.pick(number):
            self.die_at(dies)
            changes = {"cpu_millis": cpus, "memory_mb": memory}
            ask = lambda row: resources.resources_update(workspace=row, actor="owner", changes=changes, apply=True)  # noqa: E731
            self.asked(*found, "apply", ask)
            expected = found[1]
            if expected.status != Status.DESTROYED:
                expected.wanted = Amount(cpus, memory, expected.wanted.disk_size_mb)
            if expected.status == RUNNING:
                expected.applied = expected.wanted

    @rule(number=which, more=st.sampled_from([0, 64]), dies=st.integers(0, 8))
    def resize(self, number: int, more: int, dies: int) -> None:
        if found := self.pick(number):
            self.die_at(dies)
            expected = found[1]
            size = expected.applied.disk_size_mb + more
            self.asked(
                *found, "resize", lambda row: resources.overlay_resize(workspace=row, actor="owner", size_mb=size)
            )
            if expected.status in (RUNNING, Status.STOPPED):
                wanted, applied = expected.wanted, expected.applied
                expected.wanted = Amount(wanted.cpu_millis, wanted.memory_mb, size)
                expected.applied = Amount(applied.cpu_millis, applied.memory_mb, size)

    @rule(number=which, name=st.sampled_from(sorted(SERVICES)), dies=st.integers(0, 4))
    def delete_during_operation(self, number: int, name: str, dies: int) -> None:
        """A delete comes while something is queued; another operation is refused."""
        if not (found := self.pick(number)):
            return
        key, expected = found
        self.die_at(dies)
        self.host.hold_tasks()
        try:
            queued = SERVICES[name][0](workspace=self.row(key), actor="owner")
        except DomainError:
            queued = None
        if queued is not None and name != "delete":
            self.refuses(key)
        SERVICES["delete"][0](workspace=self.row(key), actor="owner")
        self.host.release_tasks()
        self.settle_and_restart_machines(but=key)
        expected.status = None

    def refuses(self, key: str) -> None:
        with pytest.raises(OperationInProgress):
            SERVICES["restart"][0](workspace=self.row(key), actor="owner")

    @rule(number=which, policy=POLICIES)
    def make_permanent(self, number: int, policy: RestartPolicy) -> None:
        if found := self.pick(number):
            lifecycle.make_permanent(workspace=self.row(found[0]), actor="owner", restart_policy=policy)
            found[1].mode, found[1].policy, found[1].remove_on_exit = Mode.PERMANENT, policy, False

    @rule(number=which, action=ACTIONS, remove=st.booleans())
    def make_temporary(self, number: int, action: TtlAction, remove: bool) -> None:
        if found := self.pick(number):
            key, expected = found
            lifecycle.make_temporary(
                workspace=self.row(key), actor="owner", ttl=3600, ttl_action=action, remove_on_exit=remove
            )
            expected.mode, expected.ttl_action, expected.remove_on_exit = Mode.TEMPORARY, action, remove
            expected.policy, expected.due, expected.sleeps = RestartPolicy.NO, False, False

    @rule(number=which, action=ACTIONS)
    def change_ttl(self, number: int, action: TtlAction) -> None:
        if found := self.pick(number):
            try:
                lifecycle.change_ttl(workspace=self.row(found[0]), actor="owner", ttl=1800, ttl_action=action)
            except InvalidState:
                assert found[1].mode is Mode.PERMANENT
            else:
                found[1].ttl_action = action

    @rule(number=which)
    def ping(self, number: int) -> None:
        if found := self.pick(number):
            row = self.row(found[0])
            try:
                lifecycle.workspace_ping(workspace=row, actor="owner")
            except InvalidState:
                assert found[1].mode is Mode.PERMANENT or not row.ttl_seconds

    @rule(number=which, on=st.booleans())
    def set_idle(self, number: int, on: bool) -> None:
        if found := self.pick(number):
            try:
                lifecycle.set_idle(
                    workspace=self.row(found[0]), actor="owner", suspend_after=120 if on else 0, stop_after=3600
                )
            except IdleNotSupported:
                assert (on, found[1].mode) == (True, Mode.TEMPORARY)
            else:
                found[1].sleeps = on

    # What happens by itself

    @where_any_is(*UP)
    @rule(number=which, what=st.sampled_from(["exit 0", "exit 1", "kill", "panic", "lose_machine"]), away=st.booleans())
    def machine_ends(self, number: int, what: str, away: bool) -> None:
        """With `away` vmhost is not there as it happens, and finds out at its next start, with the exit code."""
        if not (found := self.pick(number, UP)):
            return
        key, expected = found
        if away:
            self.host.runtime.stop()
        self.machine_ends_now(key, expected, what, away=away)

    def machine_ends_now(self, key: str, expected: Expected, what: str, *, away: bool = False) -> None:
        name, _, code = what.partition(" ")
        getattr(self.host.driver, name)(key, *([int(code)] if code else []))
        if away:
            self.host.start()
        self.settle_and_restart_machines(but=key)
        expected.machine_ended(failure=what != "exit 0", lost=what == "lose_machine")

    @where_any_is(*UP)
    @rule(number=which)
    def saved_by_its_host(self, number: int) -> None:
        if found := self.pick(number, UP):
            self.host.driver.save_externally(found[0])
            self.settle_and_restart_machines()
            found[1].status = Status.SLEEPING

    @where_any_is(Status.SLEEPING)
    @rule(number=which)
    def memory_is_spoilt(self, number: int) -> None:
        if found := self.pick(number, [Status.SLEEPING]):
            self.host.driver.corrupt_saved_memory(found[0])
            found[1].memory = ""

    @where_any_is(*UP)
    @rule(number=which)
    def fails_until_it_stays_stopped(self, number: int) -> None:
        """Each restart that its policy plans comes at once."""
        if not (found := self.pick(number, UP)):
            return
        key, expected = found
        for _ in range(3):
            if expected.status in UP:
                self.machine_ends_now(key, expected, "exit 1")
            if expected.due:
                Workspace.objects.filter(pk=key).update(restart_due_at=timezone.now())
                expected.restart_is_due()
                sweep_due()
                self.settle_and_restart_machines(but=key)

    @rule(number=which, first=st.integers(0, len(EXPIRIES) - 1), dies=st.integers(0, 4))
    def becomes_due(self, number: int, first: int, dies: int) -> None:
        """One of the times that the workspace waits for."""
        if not (found := self.pick(number)):
            return
        key, expected = found
        self.die_at(dies)
        names = sorted(EXPIRIES)
        row = self.row(key)
        if waiting := [name for name in (*names[first:], *names[:first]) if getattr(row, name)]:
            Workspace.objects.filter(pk=key).update(**{waiting[0]: timezone.now()})
            EXPIRIES[waiting[0]](expected)
        sweep_due()
        self.settle_and_restart_machines(but=key)

    @rule()
    def vmhost_restarts(self) -> None:
        self.host.restart()
        self.settle_and_restart_machines()

    @rule(rebooted=st.booleans())
    def host_goes_down_and_comes_back(self, rebooted: bool) -> None:
        vmhost_process.stop_all_machines(self.host.runtime.host_id, self.host.driver, 1.0)
        self.host.runtime.stop()
        for expected in self.expected.values():
            expected.host_goes_down()
        if rebooted:
            self.host.driver.set_boot_id(uuid4().hex)
        self.host.start()
        self.settle_and_restart_machines(rebooted=rebooted)
