"""This app's part of `/metrics` (config/app_list.py)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from common.gauges import seconds_since
from credits.models import Entry, LedgerCheck


def gauges() -> Iterator[Metric]:
    """Yield the figures of the newest check of the ledger that came to its end. Two queries at most.

    Before the first such check, its age is that of the ledger's first entry: if nothing runs at night, no check ever
    ends.
    """
    found = LedgerCheck.objects.filter(differences__isnull=False).order_by("-id").first()
    if found is not None:
        yield GaugeMetricFamily(
            "mvm_ledger_check_differences",
            "Differences that the newest finished check of the ledger found.",
            value=found.differences or 0,
        )
    since = found.finished_at if found else Entry.objects.order_by("id").values_list("created_at", flat=True).first()
    if since is not None:
        yield GaugeMetricFamily(
            "mvm_ledger_check_age_seconds",
            "Seconds since the newest finished check of the ledger.",
            value=seconds_since(since),
        )
