"""The clock of deploys: one that setting the host's time does not change.

With the host's own an hour ahead, every deploy under way would be past its deadline and its claim owner dead.
"""

from __future__ import annotations

from datetime import UTC, datetime

from pages.publication import page_store


def steady_now() -> datetime:
    """For the columns `notified_at`, `heartbeat_at` and `deadline_at`."""
    return datetime.fromtimestamp(page_store().clock.now(), UTC)
