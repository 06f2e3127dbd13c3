"""This app's part of `/metrics` (config/app_list.py)."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import Sum
from prometheus_client.core import GaugeMetricFamily, Metric

from cdn.models import File, Pool
from cdn.states import FileStatus, PoolKind
from common.gauges import backlog

_SUMS = ("stored", "trashed", "reserved")


def gauges() -> Iterator[Metric]:
    """Yield the accounts' counters, and the files that wait for the worker `media`. Two queries."""
    amounts = Pool.objects.filter(kind=PoolKind.ACCOUNT).aggregate(**{name: Sum(f"{name}_bytes") for name in _SUMS})
    kept = GaugeMetricFamily("mvm_cdn_bytes", "Bytes of all accounts, by state.", labels=["state"])
    for name in _SUMS:
        kept.add_metric([name], amounts[name] or 0)
    yield kept
    waiting = File.objects.filter(status=FileStatus.PROCESSING)
    yield from backlog(waiting, "created_at", "mvm_cdn_files_processing", "Files that are not processed yet")
