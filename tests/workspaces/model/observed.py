"""A history: what it drives, and what is true after every step of it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.utils import timezone
from hypothesis.stateful import RuleBasedStateMachine, invariant

from accounts.models import Account
from tests.fakehost import FakeHost
from tests.workspaces.faults import fault_cases
from tests.workspaces.model.expected import Expected
from workspaces.host import faults
from workspaces.host.machine_events import handle_machine_event
from workspaces.models import Activity, Workspace
from workspaces.models.workspace import Mode, RestartPolicy
from workspaces.quota import Amount, account_usage
from workspaces.states import USES_RUNNING_POOL, Status


class Observed(RuleBasedStateMachine):
    """Events are delivered by hand, so that every history is the same each time."""

    def __init__(self, host: FakeHost, account: Account) -> None:
        super().__init__()
        self.host, self.account = host, account
        self.expected: dict[str, Expected] = {}
        self.runtime = host.runtime
        faults.fault_point = lambda kind, step: None

    def teardown(self) -> None:
        self.host.settle()
        for key in self.host.driver.inventory().ids():
            self.host.driver.delete(key)
        Workspace.objects.all().delete()
        Activity.objects.all().delete()

    # Helpers

    def pick(self, number: int, among: Collection[Status] | None = None) -> tuple[str, Expected] | None:
        """One of those with such a status, if there is any."""
        if not self.expected:
            self.add(Status.RUNNING, RestartPolicy.ALWAYS, 1, False)
        keys = sorted(key for key, each in self.expected.items() if among is None or each.status in among)
        return (keys[number % len(keys)], self.expected[keys[number % len(keys)]]) if keys else None

    def row(self, key: str) -> Workspace:
        return Workspace.objects.select_related("account__plan", "namespace", "host").get(pk=key)

    def add(self, status: Status, policy: RestartPolicy, most: int, remove: bool) -> None:
        """A temporary workspace at rest with its machine."""
        fields = {"restart_policy": policy, "max_restarts": most, "remove_on_exit": remove, "stop_after": 3600}
        row = fault_cases.machine(self.host, self.account, status, mode=Mode.TEMPORARY, cmd=["serve"], **fields)
        self.expected[row.pk] = Expected(status=status, policy=policy, max_restarts=most, remove_on_exit=remove)

    def settle_and_restart_machines(self, *, but: str = "", rebooted: bool = False) -> None:
        """Wait until operations have ended, and handle the events of machines.

        Where vmhost was restarted, every workspace but `but`, which is under test, is expected to be affected by that.
        """
        self.host.settle_across_deaths()
        for path, event in self.host.driver._store.due_events():
            path.unlink(missing_ok=True)
            handle_machine_event(event, self.host.driver, self.host.runtime.host_id)
        self.host.settle_across_deaths()
        if self.runtime is not self.host.runtime:
            self.runtime = self.host.runtime
            for key, expected in self.expected.items():
                if key != but:
                    expected.host_comes_back(rebooted=rebooted)
        # A restart comes when a rule says so, however long a history takes.
        waiting = Workspace.objects.filter(restart_due_at__isnull=False)
        waiting.update(restart_due_at=timezone.now() + timedelta(hours=1))

    def kept_mb(self) -> int:
        """MiB that snapshots take of the pool of owned disk."""
        return 0

    def die_at(self, number: int) -> None:
        """vmhost dies as it comes to the step of that number; 0: it does not."""
        left = [number]

        def point(kind: str, step: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise self.host.begin_death()

        faults.fault_point = point

    # What is true after every step

    @invariant()
    def all_is_as_expected(self) -> None:
        faults.fault_point = lambda kind, step: None
        rows = Workspace.objects.only("status", "mode", "restart_due_at").in_bulk()
        seen = {key: Status(rows[key].status) if key in rows else None for key in self.expected}
        assert seen == {key: expected.status for key, expected in self.expected.items()}, seen
        wrong = fault_cases.inconsistencies(self.host, *self.expected)
        assert wrong == [], wrong
        self.expected = {key: expected for key, expected in self.expected.items() if expected.status is not None}
        for key, expected in self.expected.items():
            assert (rows[key].restart_due_at is not None) == expected.due, (key, expected)
            assert rows[key].mode == expected.mode

    @invariant()
    def the_pools_hold_what_there_is(self) -> None:
        used = account_usage(self.account)
        nothing, kept = Amount(0, 0, 0, 0), Amount(0, 0, self.kept_mb(), 0)
        rows = self.expected.values()
        assert used.records == len(rows), (
            sorted(self.expected),
            list(Workspace.objects.values("pk", "status", "account")),
        )
        assert used.owned == sum((e.wanted for e in rows if e.status != Status.DESTROYED), kept)
        assert used.running == sum((e.applied for e in rows if e.status in USES_RUNNING_POOL), nothing)
