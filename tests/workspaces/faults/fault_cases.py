"""Bringing a workspace to where an operation of each kind begins, and what shall be true after whatever happened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address
from itertools import count
from typing import Any

from django.db.models import Q
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import Account
from accounts.scopes import Scope
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_host, make_workspace, snapshot_row
from vmbackend.copies import AfterSnapshot
from vmbackend.driver import MachineState
from workspaces import power, reinstall
from workspaces.crud.services import provisioning_retry, workspace_delete
from workspaces.host import engine
from workspaces.host.machine_spec import machine_spec
from workspaces.host.process import reconcile_rows_and_machines
from workspaces.lifecycle import services as lifecycle
from workspaces.models import Activity, Operation, Snapshot, Workspace
from workspaces.models.operation import LIVE, OperationKind
from workspaces.models.workspace import Mode
from workspaces.operations import queue
from workspaces.resources import services as resources
from workspaces.snapshots.forks import NewForks, workspace_fork
from workspaces.snapshots.services import NewSnapshot, snapshot_create, workspace_restore
from workspaces.states import TRANSITIONAL, Provisioning, ProvisioningPhase, Status

NOT_PROVISIONED = {
    "provisioning_state": Provisioning.QUEUED,
    "provisioning_phase": ProvisioningPhase.QUEUED,
    "provisioning_progress": 0,
}
ACTOR = "owner"
_addresses = count(1)


@dataclass(frozen=True)
class Case:
    """An operation of one kind as an owner asks for it. `ends` is None where the row is gone then."""

    name: str
    kind: str
    begins: Status | None
    ends: Status | None
    ask: Callable[[Workspace], Any] | None = None

    @property
    def steps(self) -> list[str]:
        return [name for name, _ in engine.KINDS[self.kind].steps]


def _grow(row: Workspace) -> Any:
    return resources.overlay_resize(workspace=row, actor=ACTOR, size_mb=row.disk_size_mb * 2)


def _ask(service: Callable[..., Any], **options: Any) -> Callable[[Workspace], Any]:
    return lambda row: service(workspace=row, actor=ACTOR, **options)


def _actor(row: Workspace) -> Actor:
    return Actor(row.account, Scope.ACCOUNT, credential_id="", label=ACTOR)


def _snapshot(after: AfterSnapshot) -> Callable[[Workspace], Any]:
    return lambda row: snapshot_create(actor=_actor(row), workspace=row, new=NewSnapshot(after=after))


def _fork(row: Workspace) -> Any:
    return workspace_fork(actor=_actor(row), workspace=row, new=NewForks(count=2))


def _restore(row: Workspace) -> Any:
    return workspace_restore(actor=_actor(row), workspace=row)


RUNNING, STOPPED = Status.RUNNING, Status.STOPPED
CASES = [
    Case("create", "create", None, RUNNING),
    Case("start", "start", STOPPED, RUNNING, _ask(power.workspace_start)),
    Case("forced start", "start", RUNNING, RUNNING, _ask(power.workspace_start, force=True)),
    Case("stop", "stop", RUNNING, STOPPED, _ask(power.workspace_stop)),
    Case("stop of a sleeping one", "stop", Status.SLEEPING, STOPPED, _ask(power.workspace_stop)),
    Case("restart", "restart", RUNNING, RUNNING, _ask(power.workspace_restart)),
    Case("pause", "pause", RUNNING, Status.PAUSED, _ask(power.workspace_pause)),
    Case("resume", "resume", Status.PAUSED, RUNNING, _ask(power.workspace_resume)),
    Case("sleep", "sleep", RUNNING, Status.SLEEPING, _ask(power.workspace_sleep)),
    Case("wake", "wake", Status.SLEEPING, RUNNING, _ask(power.workspace_wake)),
    Case("resize running", "resize", RUNNING, RUNNING, _grow),
    Case("resize stopped", "resize", STOPPED, STOPPED, _grow),
    Case("reinstall", "reinstall", RUNNING, RUNNING, _ask(reinstall.workspace_reinstall)),
    Case("reinstall stopped", "reinstall", STOPPED, RUNNING, _ask(reinstall.workspace_reinstall)),
    Case("snapshot", "snapshot", RUNNING, RUNNING, _snapshot(AfterSnapshot.RESUME)),
    Case("snapshot and stop", "snapshot", RUNNING, STOPPED, _snapshot(AfterSnapshot.STOP)),
    Case("restore", "restore", RUNNING, RUNNING, _restore),
    Case("fork", "fork", RUNNING, RUNNING, _fork),
    Case("destroy", "destroy", RUNNING, Status.DESTROYED, _ask(lifecycle.workspace_destroy)),
    Case("delete", "delete", RUNNING, None, _ask(workspace_delete)),
]


def machine(host: FakeHost, account: Account, status: Status = RUNNING, **fields: Any) -> Workspace:
    """A workspace with its machine, both at rest in `status`, without the way there."""
    image = host.images.ensure("localhost/tiny:1", progress=lambda percent, sentence: None, deadline=0.0)
    row = make_workspace(
        account,
        host=make_host(),
        ip=str(IPv4Address("10.200.1.1") + next(_addresses)),
        image_digest=image.digest,
        status=status,
        **{"started_at": None} if status in (STOPPED, Status.LOST) else {},
        **fields,
    )
    host.driver.prepare(machine_spec(row, image))
    if status not in (STOPPED, Status.LOST):
        host.driver.start(row.pk)
    if status is Status.PAUSED:
        host.driver.pause(row.pk)
    if status is Status.SLEEPING:
        host.driver.sleep(row.pk)
    return row


def permanent_machines(host: FakeHost, account: Account, **defaults: Any) -> Callable[..., Workspace]:
    """Makes permanent workspaces as `machine` does, with these fields unless others are given."""

    def make(status: Status = RUNNING, **fields: Any) -> Workspace:
        return machine(host, account, status, **{"mode": Mode.PERMANENT, **defaults, **fields})

    return make


def idle_machines(host: FakeHost, account: Account, suspend_after: int) -> Callable[..., Workspace]:
    """Makes permanent workspaces with an idle policy; the idle time of those that run is over."""

    def make(status: Status = RUNNING, **fields: Any) -> Workspace:
        over = {"idle_due_at": timezone.now() - timedelta(seconds=1)} if status == RUNNING else {}
        return permanent_machines(host, account, suspend_after=suspend_after, **over)(status, **fields)

    return make


def begin(host: FakeHost, account: Account, case: Case) -> str:
    """A workspace with the operation of the case queued and its task held; returns its id."""
    host.hold_tasks()
    if case.begins is None:
        row = make_workspace(
            account, host=make_host(), ip="10.200.1.1", status=Status.QUEUED, started_at=None, **NOT_PROVISIONED
        )
        queue.enqueue_operation(row, OperationKind.CREATE, actor=ACTOR)
    else:
        row = machine(host, account, case.begins)
        assert case.ask is not None
        if case.kind == OperationKind.RESTORE:
            keep(host, row)
        case.ask(row)
    return row.pk


def keep(host: FakeHost, row: Workspace) -> None:
    """A complete snapshot of the workspace."""
    made = snapshot_row(row, image_digest=row.image_digest, memory=True)
    stored = host.driver.snapshot(row.pk, made.pk)
    made.size_bytes = stored.size_bytes
    made.save()


def come_to_rest(host: FakeHost) -> None:
    """At most two passes of reconcile, with the tasks they send."""
    host.settle_across_deaths()
    for _ in range(2):
        repaired = reconcile_rows_and_machines(host.runtime)
        host.settle_across_deaths()
        if not repaired:
            return


# What is compared, alone: histories look at it after every step, and a whole row takes a millisecond to read.
COMPARED = ("status", "ready", "ip", "started_at", "ttl_seconds", "ttl_expires_at", "suspend_after", "idle_due_at")

MACHINE_OF: dict[Status, frozenset[MachineState]] = {
    RUNNING: frozenset({MachineState.RUNNING}),
    Status.PAUSED: frozenset({MachineState.PAUSED}),
    Status.SLEEPING: frozenset({MachineState.ASLEEP}),
    STOPPED: frozenset({MachineState.OFF, MachineState.ABSENT}),
    Status.LOST: frozenset({MachineState.OFF, MachineState.ABSENT}),
    Status.FAILED: frozenset({MachineState.ABSENT}),
    Status.DESTROYED: frozenset({MachineState.ABSENT}),
}


def inconsistencies(host: FakeHost, *ids: str) -> list[str]:
    """Everything that is not as it shall be when all has come to rest; `ids` are the workspaces made so far."""
    found = Workspace.objects.filter(Q(pk__in=ids) | Q(source_snapshot_id__isnull=False)).only(*COMPARED).order_by()
    rows = {row.pk: row for row in found}
    inventory = host.driver.inventory()
    live = Operation.objects.filter(state__in=LIVE).order_by()
    wrong = [f"{kind} is still {state}" for kind, state in live.values_list("kind", "state")]
    kept = dict(Snapshot.objects.order_by().values_list("pk", "status"))
    wrong += [
        f"{key} is {status}, files there: {key in inventory.snapshots}"
        for key, status in kept.items()
        if (status == "ready") != (key in inventory.snapshots)
    ]
    wrong += [f"{key} is a snapshot without a row" for key in inventory.snapshots - set(kept)]
    wrong += [f"{key} is an orphan" for key in inventory.ids() - set(rows)]
    addresses = Counter(Workspace.objects.exclude(ip=None).order_by().values_list("ip", flat=True))
    wrong += [f"{key}: two machines have its address" for key, row in rows.items() if addresses[row.ip] > 1]
    for key, row in rows.items():
        state = inventory.domains.get(key, MachineState.ABSENT)
        wrong += [f"{key}: {problem}" for problem in _disagreements(row, state)]
        if (key in inventory.saved) != (row.status == Status.SLEEPING):
            wrong.append(f"{key} is {row.status}, saved memory there: {key in inventory.saved}")
        if row.status in (Status.FAILED, Status.DESTROYED) and key in inventory.ids():
            wrong.append(f"{key} is {row.status} and something of its machine is left")
    return wrong


def _disagreements(row: Workspace, state: MachineState) -> list[str]:
    status = Status(row.status)
    if status in TRANSITIONAL:
        return [f"it is stuck in {status}"]
    running = status is RUNNING
    truths = {
        f"it is {status} and the machine {state}": state in MACHINE_OF[status],
        f"it is {status} and ready is {row.ready}": row.ready == running,
        f"it is {status} and is_running is {row.is_running}": row.is_running == (status in (RUNNING, Status.PAUSED)),
        f"it is {status} and started at {row.started_at}": row.started_at is None or status in MACHINE_OF,
        "it has a ttl and no end": not (running and row.ttl_seconds) or row.ttl_expires_at is not None,
        "it never sleeps": not (running and row.suspend_after) or row.idle_due_at is not None,
    }
    return [sentence for sentence, holds in truths.items() if not holds]


NEXT_OPERATION: dict[Status, tuple[Callable[..., Any], Status]] = {
    RUNNING: (power.workspace_restart, RUNNING),
    STOPPED: (power.workspace_start, RUNNING),
    Status.LOST: (power.workspace_start, RUNNING),
    Status.PAUSED: (power.workspace_resume, RUNNING),
    Status.SLEEPING: (power.workspace_resume, RUNNING),
    Status.FAILED: (provisioning_retry, RUNNING),
}


def act(host: FakeHost, key: str, *, operate: bool = True) -> list[str]:
    """The owner goes on with the workspace, then deletes it; afterwards nothing may be left."""
    row = Workspace.objects.filter(pk=key).first()
    if row is None:
        return inconsistencies(host, key)
    wrong: list[str] = []
    if operate and Status(row.status) in NEXT_OPERATION:
        service, leads_to = NEXT_OPERATION[Status(row.status)]
        service(workspace=row, actor=ACTOR)
        host.settle()
        row.refresh_from_db()
        if row.status != leads_to:
            wrong.append(f"{service.__name__} led to {row.status}: {row.error_message}")
        wrong += inconsistencies(host, key)
    for each in [row, *Workspace.objects.exclude(pk=key).filter(source_snapshot_id__isnull=False)]:
        workspace_delete(workspace=each, actor=ACTOR)
    host.settle()
    if Workspace.objects.filter(pk=key).exists():
        wrong.append("it could not be deleted")
    return wrong + inconsistencies(host, key)


def activity_mentions(key: str, *parts: str) -> bool:
    """Whether the workspace's activity says one of these."""
    details = Activity.objects.filter(workspace_id=key).values_list("detail", flat=True)
    return any(part in detail for detail in details for part in parts)
