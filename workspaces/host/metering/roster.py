"""Which machines of a host are metered now, and up to which counters."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q

from vmbackend.samples import Sample
from workspaces.host.metering.meter import MeterTarget
from workspaces.models import Operation, Usage, Workspace
from workspaces.models.operation import LIVE
from workspaces.states import Status

_COLUMNS = (
    "pk", "account_id", "namespace_id", "applied_cpu_millis", "applied_memory_mb", "usage__tracking",
    "usage__reset_count",
)  # fmt: skip


def meter_targets(host_name: str) -> dict[str, MeterTarget]:
    """Machines that run and are ready, or are paused; without those that have an operation in flight.

    Sampling one that is being saved or ended would delay the samples of all. Two queries.
    """
    up = Q(status=Status.RUNNING, ready=True) | Q(status=Status.PAUSED)
    rows = list(Workspace.objects.filter(up, host_id=host_name).order_by().values_list(*_COLUMNS))
    # After the rows, so that an operation that was queued between the two queries is seen.
    busy = set(
        Operation.objects.filter(queue=f"host.{host_name}", state__in=LIVE).values_list("workspace_id", flat=True)
    )
    return {
        key: MeterTarget(key, account, namespace, cpus, memory, tracking is not False, reset_count or 0)
        for key, account, namespace, cpus, memory, tracking, reset_count in rows
        if key not in busy
    }


def counted_samples(workspace_ids: Iterable[str]) -> dict[str, tuple[Sample | None, int]]:
    """The counters up to which these workspaces' usage is counted, and the tick; None: nothing was counted yet."""
    found = {row.workspace_id: row for row in Usage.objects.filter(workspace_id__in=list(workspace_ids))}
    return {key: (row_sample(found[key]), found[key].tick) if key in found else (None, 0) for key in workspace_ids}


def row_sample(row: Usage) -> Sample | None:
    """The counters up to which a row counts; None: nothing was counted yet."""
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
