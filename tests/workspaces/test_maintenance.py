"""A host in maintenance: nothing is started there, and what runs goes on."""

from __future__ import annotations

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from vmbackend.models import Host


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    answer = api.post("/workspace", {"slug": "the-box"})
    assert answer.status_code == 201
    return str(answer.json()["workspace"]["id"])


def test_a_running_machine_goes_on_and_is_not_started_again(api: Caller, made: str) -> None:
    Host.objects.update(state="maintenance")
    assert api.get(f"/workspace/{made}").json()["workspace"]["ready"] is True
    for action in ("restart", "reinstall"):
        answer = api.post(f"/workspace/{made}/{action}")
        assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
        assert "maintenance" in answer.json()["message"]
    assert api.post(f"/workspace/{made}/stop").status_code == 200
    assert api.post(f"/workspace/{made}/start").status_code == 503
    Host.objects.update(state="draining")
    assert api.post(f"/workspace/{made}/start").status_code == 200


def test_a_sleeping_machine_is_not_woken(api: Caller, made: str) -> None:
    assert api.post(f"/workspace/{made}/sleep").status_code == 200
    Host.objects.update(state="maintenance")
    for action in ("resume", "start"):
        assert api.post(f"/workspace/{made}/{action}").status_code == 503
    Host.objects.update(state="active")
    assert api.post(f"/workspace/{made}/resume").status_code == 200


def test_nothing_is_placed_there(api: Caller, vmhost: FakeHost) -> None:
    Host.objects.update(state="maintenance")
    assert api.post("/workspace", {}).status_code == 503
