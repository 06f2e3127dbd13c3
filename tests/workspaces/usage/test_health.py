"""`info.health`: whether the services of a running guest answer."""

from __future__ import annotations

import pytest
from django.db import DatabaseError

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import bring
from workspaces.host.metering import sampler as sampling
from workspaces.host.metering.health import store_health
from workspaces.host.metering.sampler import Sampler
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
SINCE = 1_700_000_000.0
SHOWN = "2023-11-14T22:13:20.000Z"


def info(api: Caller, workspace_id: str) -> tuple[str | None, str | None]:
    found = api.get(f"/workspace/{workspace_id}").json()["workspace"]["info"]
    return found["health"], found["unresponsive_since"]


def test_a_report_is_shown_and_keeps_its_first_time_until_the_guest_answers(api: Caller) -> None:
    key = make_workspace(api.account, status=Status.RUNNING, ready=True).pk
    assert info(api, key) == ("ok", None)
    store_health([(key, SINCE)])
    assert info(api, key) == ("unresponsive", SHOWN)
    assert api.get("/workspace").json()["workspaces"][0]["info"]["health"] == "unresponsive"
    store_health([(key, SINCE + 100)])
    assert info(api, key) == ("unresponsive", SHOWN)
    store_health([(key, SINCE), (key, None)])
    assert info(api, key) == ("ok", None)


@pytest.mark.parametrize("status", [Status.STOPPED, Status.SLEEPING, Status.PAUSED, Status.STARTING])
def test_a_workspace_that_does_not_run_has_no_health(api: Caller, status: Status) -> None:
    key = make_workspace(api.account, status=status).pk
    store_health([(key, SINCE)])
    assert info(api, key) == (None, None)


def test_a_workspace_that_was_unresponsive_starts_with_good_health(api: Caller, vmhost: FakeHost) -> None:
    made = api.post("/workspace", {"slug": "the-box"}).json()["workspace"]["id"]
    store_health([(made, SINCE)])
    assert info(api, made)[0] == "unresponsive"
    bring(api, vmhost, made, Status.STOPPED)
    assert info(api, made) == (None, None)
    api.post("/workspace/the-box/start")
    assert info(api, made) == ("ok", None)


def test_reports_wait_for_the_database(api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    made = api.post("/workspace", {"slug": "the-box"}).json()["workspace"]["id"]
    host = Workspace.objects.get(pk=made).host
    assert host is not None
    sampler = Sampler(host.pk, vmhost.driver)
    sampler.disks.reports.append((made, SINCE))
    with monkeypatch.context() as broken:

        def fail(reports: object) -> None:
            raise DatabaseError("gone")

        broken.setattr(sampling, "store_health", fail)
        sampler.run_once()
    assert info(api, made) == ("ok", None)
    sampler.run_once()
    assert info(api, made) == ("unresponsive", SHOWN)
    assert not sampler.disks.reports
    sampler.stop()
