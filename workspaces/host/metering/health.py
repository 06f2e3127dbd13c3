"""Health of running guests in their rows: whether their services answer. Written only if it changed."""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q

from common.times import moment
from workspaces.rows import update_all
from workspaces.states import Status


def store_health(reports: Iterable[tuple[str, float | None]]) -> None:
    """Write reports of the disk meter: a machine's id, and since when its guest has not answered, None: it answers.

    A row that is unresponsive already keeps its time. Leaving `running` clears it (`transitions.py`).
    """
    latest = dict(reports)
    answering = [key for key, since in latest.items() if since is None]
    if answering:
        update_all(Q(pk__in=answering, unresponsive_since__isnull=False), unresponsive_since=None)
    for key, since in latest.items():
        if since is not None:
            never = Q(pk=key, status=Status.RUNNING, unresponsive_since__isnull=True)
            update_all(never, unresponsive_since=moment(since))
