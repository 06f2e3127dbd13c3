"""Machines of a host that are metered now, and the counters up to which they are counted."""

from __future__ import annotations

from collections.abc import Iterable

from common.compiled_query import CompiledQuery
from vmbackend.models import queue_of_host
from vmbackend.samples import Sample
from workspaces.host.metering.meter import MeterTarget
from workspaces.models import Operation, Usage, Workspace
from workspaces.models.operation import LIVE, OperationKind, OperationState
from workspaces.states import Status

_COLUMNS = (
    "pk", "account_id", "namespace_id", "applied_cpu_millis", "applied_memory_mb", "usage__tracking",
    "usage__reset_count", "name", "namespace__slug",
)  # fmt: skip
# A machine of such a row has no process, or none yet.
_WITHOUT_PROCESS = (
    Status.QUEUED, Status.STOPPED, Status.SLEEPING, Status.FAILED, Status.DESTROYED, Status.LOST,
    # It is being saved or shut down. What was metered is written at once: after the commit this host may not.
    Status.MOVING,
)  # fmt: skip
# While one of these is carried out the hypervisor answers nothing about the machine, and its guest does not run.
_NOT_ASKED = (OperationKind.SLEEP, OperationKind.DESTROY, OperationKind.DELETE)


# The machines of the host with that name, and the operations of its queue: read every second.
_MACHINES = CompiledQuery(
    lambda names: (
        Workspace.objects.filter(host_id__in=names)
        .exclude(status__in=_WITHOUT_PROCESS)
        .order_by()
        .values_list(*_COLUMNS)
    )
)
_LIVE_OPERATIONS = CompiledQuery(
    lambda queues: Operation.objects.filter(queue__in=queues, state__in=LIVE).values_list(
        "workspace_id", "kind", "state"
    )
)


def meter_targets(host_id: str) -> dict[str, MeterTarget]:
    """Return the machines that may have a process, also while an operation works on them: their usage counts while they
    boot or stop. Machines that are being saved or removed are left out. Two queries.
    """
    rows = _MACHINES.all_rows([host_id])
    # After the rows, so that an operation that was queued between the two queries is seen.
    operations, not_asked = _live_operations(host_id)
    return {
        key: MeterTarget(
            key,
            account,
            namespace,
            cpus,
            memory,
            tracking is not False,
            reset_count or 0,
            operations.get(key, ""),
            name,
            slug,
        )
        for key, account, namespace, cpus, memory, tracking, reset_count, name, slug in rows
        if key not in not_asked
    }


def _live_operations(host_id: str) -> tuple[dict[str, str], set[str]]:
    """Return the states of live operations by workspace (`running` if there are two), and the workspaces not to ask
    for.
    """
    states: dict[str, str] = {}
    not_asked = set()
    for key, kind, state in _LIVE_OPERATIONS.all_rows([queue_of_host(host_id)]):
        if states.get(key) != OperationState.RUNNING:
            states[key] = state
        if state == OperationState.RUNNING and kind in _NOT_ASKED:
            not_asked.add(key)
    return states, not_asked


def counted_samples(workspace_ids: Iterable[str]) -> dict[str, tuple[Sample | None, int]]:
    """Return the counters up to which usage of these workspaces is counted, and the tick. None: nothing was counted
    yet.
    """
    found = {row.workspace_id: row for row in Usage.objects.filter(workspace_id__in=list(workspace_ids))}
    return {key: (row_sample(found[key]), found[key].tick) if key in found else (None, 0) for key in workspace_ids}


def row_sample(row: Usage) -> Sample | None:
    """Return the counters up to which a row counts, or None if nothing was counted yet."""
    if not row.tick:
        return None
    return Sample(
        at=0,
        generation=row.generation,
        cpu_time_ns=row.cpu_time_ns,
        disk_read_bytes=row.disk_read_bytes,
        disk_write_bytes=row.disk_write_bytes,
        net_rx_bytes=row.net_rx_bytes,
        net_tx_bytes=row.net_tx_bytes,
    )
