"""This app's part of `/metrics` (config/app_list.py)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from common.gauges import backlog
from notifications.models import Send, SendState


def gauges() -> Iterator[Metric]:
    live = Send.objects.filter(state__in=(SendState.QUEUED, SendState.RUNNING))
    return backlog(live, "created_at", "mvm_sends_live", "Sends of notifications that have not ended")
