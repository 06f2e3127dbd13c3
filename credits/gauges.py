"""This app's part of `/metrics` (config/app_list.py)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from common.gauges import seconds_since
from credits.models import LedgerCheck, WaitingCharge


def gauges() -> Iterator[Metric]:
    """Of the newest check of the ledger that came to its end; none before there was one. Two queries."""
    found = LedgerCheck.objects.filter(differences__isnull=False).order_by("-id").first()
    if found is not None and found.finished_at is not None:
        yield GaugeMetricFamily(
            "mvm_ledger_check_differences", "What the newest check of the ledger found.", value=found.differences or 0
        )
        age = seconds_since(found.finished_at)
        yield GaugeMetricFamily("mvm_ledger_check_age_seconds", "Since that check.", value=age)
    yield GaugeMetricFamily(
        "mvm_charges_waiting", "Charges that wait for their balance.", value=WaitingCharge.objects.count()
    )
