"""What is refused on a host whose disk is nearly full."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.disk_guard.scenes import create
from tests.workspaces.workspace_states import bring, status_of
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


# The request, and the status of the workspace before it.
BEGINNINGS: dict[str, tuple[str, str, dict[str, object], Status]] = {
    "create": ("POST", "", {}, Status.RUNNING),
    "start": ("POST", "start", {}, Status.STOPPED),
    "forced start": ("POST", "start", {"force": True}, Status.RUNNING),
    "restart": ("POST", "restart", {}, Status.RUNNING),
    "reinstall": ("POST", "reinstall", {}, Status.RUNNING),
    "resize": ("PUT", "overlay/resize", {"size_mb": 128}, Status.RUNNING),
    "resume": ("POST", "resume", {}, Status.PAUSED),
    "wake": ("POST", "resume", {}, Status.SLEEPING),
}


@pytest.mark.parametrize("what", BEGINNINGS)
def test_no_machine_is_let_run_on_a_host_without_room(
    api: Caller, vmhost: FakeHost, nearly_full: Callable[[], None], what: str
) -> None:
    method, action, body, before = BEGINNINGS[what]
    made = create(api)
    if before is not Status.RUNNING:
        bring(api, vmhost, made, before)
    machine = vmhost.driver.state(made)
    nearly_full()
    path = f"/workspace/{made}/{action}" if action else "/workspace"
    answer = api.post(path, body) if method == "POST" else api.put(path, body)
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    assert answer.json()["details"]["resource"] == "disk_size_mb"
    assert (vmhost.driver.state(made), status_of(made)) == (machine, before)
    assert api.delete(f"/workspace/{made}").status_code == 200
