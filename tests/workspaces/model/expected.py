"""What a workspace should be after everything that happened to it: the state table, small enough to be seen through."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.workspaces.sweep.sweeping import AFTER_TTL
from tests.workspaces.test_states import SERVICES, Outcome
from workspaces.errors import SnapshotNotReady
from workspaces.models.workspace import Mode, RestartPolicy, TtlAction
from workspaces.quota import Amount
from workspaces.states import Status

RUNNING, STOPPED, PAUSED, SLEEPING = Status.RUNNING, Status.STOPPED, Status.PAUSED, Status.SLEEPING
UP = (RUNNING, PAUSED)
ENDS_OF: dict[Status, Status] = {
    Status.QUEUED: RUNNING,
    Status.STARTING: RUNNING,
    Status.RESTARTING: RUNNING,
    Status.PAUSING: PAUSED,
    Status.RESUMING: RUNNING,
    Status.SUSPENDING: SLEEPING,
    Status.WAKING: RUNNING,
    Status.REINSTALLING: RUNNING,
    Status.RESTORING: RUNNING,
}
# Moves after which the machine has the saved sizes.
MADE_AGAIN = {Status.QUEUED, Status.STARTING, Status.RESTARTING, Status.REINSTALLING}
AGAIN = (RestartPolicy.ALWAYS, RestartPolicy.UNLESS_STOPPED)


@dataclass
class Expected:
    """`wanted` and `applied`: sizes. `due`: a restart waits. `came_down`: its host's going down stopped it last.

    `disk` and `memory`: what was written there; memory None: as it is found. `source`: the snapshot that its disk came
    from; `is_source_gone`: its creation from it failed, and cannot be tried again.
    """

    status: Status | None = RUNNING
    mode: Mode = Mode.TEMPORARY
    ttl_action: TtlAction = TtlAction.STOP
    remove_on_exit: bool = False
    policy: RestartPolicy = RestartPolicy.NO
    max_restarts: int = 0
    restarts: int = 0
    due: bool = False
    came_down: bool = False
    sleeps: bool = False
    wanted: Amount = field(default_factory=lambda: Amount(100, 128, 64))
    applied: Amount = field(default_factory=lambda: Amount(100, 128, 64))
    disk: str = ""
    memory: str | None = ""
    source: str | None = None
    is_source_gone: bool = False

    def outcome(self, service: str) -> Outcome:
        """What the table says of an operation."""
        assert self.status is not None
        if self.is_source_gone and self.status == Status.FAILED and service == "start with force":
            return SnapshotNotReady
        if self.due and service == "stop":
            return None  # its restart is called off
        return SERVICES[service][1][self.status]

    def operation_ended(self, service: str) -> None:
        """The operation was accepted and ended."""
        through = self.outcome(service)
        if service == "stop" and through is None and self.due:
            self.due = self.came_down = False  # its owner wants it to stay stopped
        if not isinstance(through, Status):
            return
        was_running = self.status == RUNNING
        if through in MADE_AGAIN and not (through is Status.STARTING and was_running):
            self.applied, self.memory = self.wanted, ""
        if through is Status.REINSTALLING:
            self.disk = ""
        if through in (Status.RESIZING, Status.QUEUED) or (through is Status.STARTING and was_running):
            self.memory = None
        if service in ("start", "start with force", "restart") and through in (Status.STARTING, Status.RESTARTING):
            self.restarts = 0
        if service == "stop":
            self.came_down = False
        if through is not Status.RESIZING:
            self.due = False
        self.status = self._end(service, through)

    def _end(self, service: str, through: Status) -> Status | None:
        if service == "delete":
            return None
        if service == "destroy":
            return Status.DESTROYED
        if service == "stop":
            return STOPPED
        return self.status if through is Status.RESIZING else ENDS_OF[through]

    def machine_ended(self, *, failure: bool, lost: bool = False) -> None:
        """Its process went by itself."""
        if self.status not in UP:
            return
        self.memory = ""
        if self.remove_on_exit and not lost:
            self.status = None
            return
        self.status, self.came_down = (Status.LOST if lost else STOPPED), False
        wanted = self.policy in AGAIN or (self.policy == RestartPolicy.ON_FAILURE and failure)
        if wanted and not self.remove_on_exit and not (self.max_restarts and self.restarts >= self.max_restarts):
            self.restarts, self.due = self.restarts + 1, True

    def ttl_is_over(self) -> None:
        assert self.status is not None
        before = self.status
        self.status = AFTER_TTL[self.ttl_action].get(before, before)
        if self.status is STOPPED and before is not STOPPED:
            self.due = self.came_down = False

    def restart_is_due(self) -> None:
        """A policy that has become `no` since it was planned wants none."""
        if self.due and self.status in (STOPPED, Status.LOST):
            self.due = False
            if self.policy != RestartPolicy.NO:
                self.status, self.applied = RUNNING, self.wanted

    def idle_is_over(self) -> None:
        if self.status == RUNNING and self.sleeps:
            self.status = SLEEPING

    def memory_is_over(self) -> None:
        if self.status == SLEEPING:
            self.status, self.came_down = STOPPED, False

    def host_goes_down(self) -> None:
        if self.status in UP:
            self.status, self.came_down = STOPPED, True

    def host_comes_back(self, *, rebooted: bool) -> None:
        if self.status != STOPPED or self.due:
            return
        self.due = (self.came_down and self.policy in AGAIN) or (rebooted and self.policy == RestartPolicy.ALWAYS)
