"""This app's part of `/metrics` (config/app_list.py). A fixed number of queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.db.models import Count, Min, QuerySet, Sum
from prometheus_client.core import GaugeMetricFamily, Metric

from common.gauges import seconds_since
from common.times import EPOCH
from vmbackend.models import Host
from workspaces.models import MeterRecord, Operation, Workspace
from workspaces.models.charging import ChargePosition
from workspaces.models.operation import LIVE
from workspaces.placement import promised_memory, uncommitted_memory
from workspaces.states import OWNS_NOTHING, USES_RUNNING_POOL


def gauges() -> Iterator[Metric]:
    yield from _workspaces()
    yield from _operations()
    yield from _hosts()
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


def _hosts() -> Iterator[Metric]:
    up = GaugeMetricFamily("mvm_host_up", "Whether its vmhost reports and its hypervisor answers.", labels=["host"])
    accepts = GaugeMetricFamily("mvm_host_accepts_new", "Whether new machines may be placed there.", labels=["host"])
    heartbeat = GaugeMetricFamily("mvm_host_heartbeat_seconds", "Seconds since its last report.", labels=["host"])
    memory = GaugeMetricFamily("mvm_host_memory_bytes", "Its memory.", labels=["host"])
    room = GaugeMetricFamily("mvm_host_memory_room_bytes", "Memory for further machines.", labels=["host"])
    disk = GaugeMetricFamily("mvm_host_disk_free_bytes", "Free on its disk, after its reserve.", labels=["host"])
    for host, promised in promised_memory(Host.objects.order_by("name")):
        name = [host.name]
        up.add_metric(name, host.is_alive)
        accepts.add_metric(name, host.accepts_new)
        heartbeat.add_metric(name, seconds_since(host.last_seen_at or EPOCH))
        memory.add_metric(name, host.memory_mb << 20)
        room.add_metric(name, uncommitted_memory(host, promised) * (1 << 20))
        disk.add_metric(name, host.disk_free_mb << 20)
    yield from (up, accepts, heartbeat, memory, room, disk)


def _charge_lag() -> Metric:
    """Return the metric of charging's delay: 0 if everything that was metered is charged."""
    position = ChargePosition.objects.values_list("record_id", flat=True).first() or 0
    waiting = MeterRecord.objects.filter(pk__gt=position).order_by("pk").values_list("tick", flat=True).first()
    lag = 0.0 if waiting is None else seconds_since(EPOCH + timedelta(microseconds=waiting))
    return GaugeMetricFamily("mvm_charge_lag_seconds", "Seconds since the oldest usage that is not charged.", value=lag)
