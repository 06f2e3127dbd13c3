"""What the processes keep for some seconds (`common.cached_value`), which a test may need as it is now."""

from __future__ import annotations

from config import health, metrics_page
from console import figures, summary

CACHED = (health.PROBLEMS, metrics_page.TEXT, figures.HOSTS, summary.STATUS_COUNTS)


def invalidate_cached_values() -> None:
    for value in CACHED:
        value.invalidate()
