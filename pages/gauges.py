"""This app's part of `/metrics` (config/app_list.py)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from common.gauges import backlog
from pages.models import PageDeploy
from pages.states import LIVE


def gauges() -> Iterator[Metric]:
    live = PageDeploy.objects.filter(state__in=LIVE)
    return backlog(live, "created_at", "mvm_page_deploys_live", "Deploys of pages that have not ended")
