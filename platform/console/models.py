"""Counts that the dashboard draws trends from, and sums that cost too much for each page. Written by
`console.summary`."""

from __future__ import annotations

from typing import Any

from django.db import models


class HourlySummary(models.Model):
    """One hour (UTC), as it was counted last: at its end, or until now. Kept for KEPT_DAYS.

    `counts`: workspaces by status. `details`: sums over large tables, in the newest row alone (`summary.Details`).
    """

    hour = models.DateTimeField(primary_key=True)
    taken_at = models.DateTimeField()
    counts: models.JSONField[dict[str, int]] = models.JSONField(default=dict)
    details: models.JSONField[dict[str, Any] | None] = models.JSONField(null=True)

    class Meta:
        verbose_name_plural = "hourly summaries"
        ordering = ["-hour"]

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H:00}"
