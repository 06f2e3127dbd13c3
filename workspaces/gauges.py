"""This app's part of `/metrics` (config/app_list.py). A fixed number of queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any

from django.db.models import Count, Min, QuerySet, Sum
from prometheus_client.core import GaugeMetricFamily, Metric

from common.gauges import seconds_since
from common.times import EPOCH
from vmbackend.host_states import UNREACHABLE, HostState, is_control_plane_fault
from vmbackend.models import Host
from workspaces.models import Drain, MeterRecord, Move, Operation, Snapshot, WarmMachine, Workspace
from workspaces.models.charging import ChargePosition
from workspaces.models.move import MoveState
from workspaces.models.operation import LIVE
from workspaces.models.snapshot import LIVING
from workspaces.models.warm_machine import WarmState
from workspaces.placement import uncommitted_memory
from workspaces.states import OWNS_NOTHING, USES_RUNNING_POOL


def gauges() -> Iterator[Metric]:
    yield from _workspaces()
    yield from _snapshots()
    yield from _operations()
    hosts = list(Host.objects.order_by("name"))
    yield from _hosts(hosts)
    yield _fault(hosts)
    yield from _templates(hosts)
    yield from _warm_pools(hosts)
    yield _charge_lag()


def _workspaces() -> Iterator[Metric]:
    """Yield the three metrics of workspaces, from one pass over the index of the pools."""
    counts = GaugeMetricFamily("mvm_workspaces", "Workspaces and sandboxes, by status.", labels=["status"])
    owned, running = Counter[str](), Counter[str]()
    found: QuerySet[Any, Any] = Workspace.objects.order_by().values("status")
    for row in found.annotate(count=Count("*"), **_SUMS):
        counts.add_metric([row["status"]], row["count"])
        owned.update(_resources(row, "") if row["status"] not in OWNS_NOTHING else {})
        running.update(_resources(row, "applied_") if row["status"] in USES_RUNNING_POOL else {})
    yield counts
    yield _pool("mvm_owned_resources", "Resources in all accounts' pools: CPUs, bytes.", owned)
    yield _pool("mvm_running_resources", "Resources of running machines: CPUs, bytes.", running)


_FIELDS = ("cpu_millis", "memory_mb", "disk_size_mb")
_SUMS = {f"sum_{prefix}{field}": Sum(f"{prefix}{field}") for prefix in ("", "applied_") for field in _FIELDS}


def _resources(row: dict[str, Any], prefix: str) -> dict[str, int]:
    return {field: row[f"sum_{prefix}{field}"] for field in _FIELDS}


def _pool(name: str, what: str, used: Counter[str]) -> Metric:
    metric = GaugeMetricFamily(name, what, labels=["kind"])
    metric.add_metric(["cpus"], used["cpu_millis"] / 1000)
    metric.add_metric(["memory_bytes"], used["memory_mb"] << 20)
    metric.add_metric(["disk_bytes"], used["disk_size_mb"] << 20)
    return metric


def _snapshots() -> Iterator[Metric]:
    counts = GaugeMetricFamily("mvm_snapshots", "Snapshots that are not deleted, by status.", labels=["status"])
    occupied = GaugeMetricFamily("mvm_snapshot_bytes", "What they occupy on their hosts.", labels=["status"])
    found = Snapshot.objects.filter(LIVING).order_by().values("status")
    for row in found.annotate(count=Count("*"), size=Sum("size_bytes")):
        counts.add_metric([row["status"]], row["count"])
        occupied.add_metric([row["status"]], row["size"])
    yield counts
    yield occupied


def _operations() -> Iterator[Metric]:
    live = GaugeMetricFamily("mvm_operations_live", "Operations that have not ended.", labels=["queue", "state"])
    oldest = GaugeMetricFamily(
        "mvm_operation_oldest_seconds", "Seconds since the oldest of them was requested.", labels=["queue", "state"]
    )
    found = Operation.objects.filter(state__in=LIVE).order_by().values("queue", "state")
    for row in found.annotate(count=Count("pk"), first=Min("created_at")):
        live.add_metric([row["queue"], row["state"]], row["count"])
        oldest.add_metric([row["queue"], row["state"]], seconds_since(row["first"]))
    yield live
    yield oldest


def _hosts(hosts: list[Host]) -> Iterator[Metric]:
    """Yield the metrics of hosts. Two queries besides their rows."""
    up = GaugeMetricFamily("mvm_host_up", "Whether its vmhost reports and its hypervisor answers.", labels=["host"])
    state = GaugeMetricFamily("mvm_host_state", "Its state: 1 for that one.", labels=["host", "state"])
    lease = GaugeMetricFamily("mvm_host_lease_age_seconds", "Seconds since its lease was renewed.", labels=["host"])
    memory = GaugeMetricFamily("mvm_host_memory_bytes", "Its memory.", labels=["host"])
    room = GaugeMetricFamily("mvm_host_memory_room_bytes", "Memory for further machines.", labels=["host"])
    disk = GaugeMetricFamily("mvm_host_disk_free_bytes", "Free on its disk, after its reserve.", labels=["host"])
    orphans = GaugeMetricFamily("mvm_orphans", "Former copies of workspaces whose files it keeps.", labels=["host"])
    moves = GaugeMetricFamily("mvm_moves_live", "Workspaces that are leaving it.", labels=["host"])
    stuck = GaugeMetricFamily("mvm_drain_refused", "Workspaces of a drain that can move nowhere now.", labels=["host"])
    refused = dict(Drain.objects.filter(ended_at=None, host__state=HostState.DRAINING).values_list("pk", "refusals"))
    live = Move.objects.filter(state=MoveState.LIVE).order_by().values_list("source").annotate(count=Count("pk"))
    leaving = dict(live)
    for host in hosts:
        name = [host.name]
        moves.add_metric(name, leaving.get(host.pk, 0))
        stuck.add_metric(name, len(refused.get(host.pk, ())))
        up.add_metric(name, host.answers)
        for each in (*HostState.values, UNREACHABLE):
            state.add_metric([host.name, each], host.shown_state == each)
        lease.add_metric(name, seconds_since(host.last_seen_at or EPOCH))
        memory.add_metric(name, host.memory_mb << 20)
        room.add_metric(name, uncommitted_memory(host) * (1 << 20))
        disk.add_metric(name, host.disk_free_mb << 20)
        orphans.add_metric(name, len(host.orphans))
    yield from (up, state, lease, memory, room, disk, orphans, moves, stuck)


def _fault(hosts: list[Host]) -> Metric:
    """Return which silent hosts are taken for a fault of the control plane. One query."""
    found = GaugeMetricFamily(
        "mvm_control_plane_fault", "Whether it fell silent at once with a third of the hosts.", labels=["host"]
    )
    is_fault = is_control_plane_fault(Host.objects.exclude(state=HostState.GONE))
    for host in hosts:
        found.add_metric([host.name], is_fault and host.shown_state == UNREACHABLE)
    return found


def _templates(hosts: list[Host]) -> Iterator[Metric]:
    """Yield the metrics of boot templates, as the hosts reported them last: no query."""
    count = GaugeMetricFamily("mvm_host_templates", "Its boot templates.", labels=["host"])
    size = GaugeMetricFamily("mvm_host_template_bytes", "What they occupy.", labels=["host"])
    loads = GaugeMetricFamily(
        "mvm_host_template_loads", "Loads of them since its vmhost began, by outcome.", labels=["host", "outcome"]
    )
    for host in hosts:
        count.add_metric([host.name], len(host.templates))
        size.add_metric([host.name], _sum(host.templates, "size_bytes"))
        failed = _sum(host.templates, "failures")
        loads.add_metric([host.name, "succeeded"], _sum(host.templates, "loads") - failed)
        loads.add_metric([host.name, "failed"], failed)
    yield from (count, size, loads)


def _warm_pools(hosts: list[Host]) -> Iterator[Metric]:
    """Yield the metrics of warm pools: what the hosts reported last, and the machines that have rows. One query."""
    wanted = GaugeMetricFamily("mvm_host_pool_wanted", "Machines that its warm pool should have.", labels=["host"])
    creates = GaugeMetricFamily(
        "mvm_host_pool_creates", "Creates of ten minutes that got one, and that did not.", labels=["host", "outcome"]
    )
    for host in hosts:
        wanted.add_metric([host.name], _sum(host.pool, "wanted"))
        for outcome in ("claimed", "missed"):
            creates.add_metric([host.name, outcome], _sum(host.pool, outcome))
    machines = GaugeMetricFamily(
        "mvm_host_pool_machines", "Machines that its warm pool has, by state.", labels=["host", "state"]
    )
    rows = WarmMachine.objects.order_by().values_list("host_id", "state").annotate(count=Count("*"))
    found = {(host_id, state): count for host_id, state, count in rows}
    for host, state in product(hosts, WarmState.values):
        machines.add_metric([host.name, state], found.get((host.pk, state), 0))
    yield from (wanted, creates, machines)


def _sum(reported: list[dict[str, Any]], name: str) -> int:
    return sum(each[name] for each in reported)


def _charge_lag() -> Metric:
    """Return the metric of charging's delay: 0 if everything that was metered is charged."""
    position = ChargePosition.objects.values_list("record_id", flat=True).first() or 0
    waiting = MeterRecord.objects.filter(pk__gt=position).order_by("pk").values_list("tick", flat=True).first()
    lag = 0.0 if waiting is None else seconds_since(EPOCH + timedelta(microseconds=waiting))
    return GaugeMetricFamily("mvm_charge_lag_seconds", "Seconds since the oldest usage that is not charged.", value=lag)
