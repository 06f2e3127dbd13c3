"""Removing rows that are older than they are kept for, a batch at a time."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Model

BATCH, MAX_BATCHES = 1000, 50


def prune_rows(model: type[Model], column: str, before: datetime) -> int:
    """Delete rows whose `column` is earlier, from the oldest by primary key on, some ten thousand at most. Return how
    many; the rest is the next call's. Each batch is a transaction: what was deleted stays so if this process dies.

    For tables that are only added to: no index is needed, as the first row that stays ends it.
    """
    removed = 0
    for _ in range(MAX_BATCHES):
        rows = model._default_manager.order_by("pk").values_list("pk", column)[:BATCH]
        old = [key for key, moment in rows if moment < before]
        removed += model._default_manager.filter(pk__in=old).delete()[0]
        if len(old) < BATCH:
            break
    return removed
