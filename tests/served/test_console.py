"""The live part of a workspace's page, through the real edge and streams."""

from __future__ import annotations

from tests.served.test_browser import VIOLATIONS, logged_in, shows
from tests.vm.browser import Browser
from tests.vm.instances import TestInstance


def test_staff_watch_a_workspace_live(served: TestInstance, chromium: Browser, box: str) -> None:
    page = logged_in(served, chromium, f"/admin/workspaces/workspace/{box}/change/")
    page.value("document.querySelector('#tab-live').click()")
    shows(page, "document.querySelector('[data-live-root] form button').offsetHeight > 0")
    page.value("document.querySelector('[data-live-root] form').requestSubmit()")
    shows(page, "document.querySelector('[data-status]').textContent.startsWith('Live')")
    chart = "Chart.getChart(document.querySelector('canvas[data-live]')).data.datasets[0].data"
    shows(page, f"{chart}.filter((value) => value !== null).length >= 2")
    assert page.value(VIOLATIONS) == []
    activity = served.api().call("GET", "/workspace/activity", 200)
    assert "staff_view" in str(activity)
