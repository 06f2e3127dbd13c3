"""What every route of the sandbox level has in common: the guest, waking it, methods, bodies, other origins."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.conf import settings as configured
from django.test import Client
from django.utils import timezone

from common.body_rules import body_limit, is_streamed
from tests import asgi
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.sandboxes.conftest import LEVEL_URLS, Holder
from tests.world import assert_error
from vmbackend.errors import CapacityExceeded
from workspaces import last_used, power
from workspaces.models import Operation, Workspace
from workspaces.states import Status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(LEVEL_URLS)]


def put_to_sleep(holder: Holder, vmhost: FakeHost) -> None:
    power.workspace_sleep(workspace=holder.workspace, actor="test")
    vmhost.settle()
    assert holder.workspace.status == Status.SLEEPING


def test_a_holder_runs_what_a_route_offers(holder: Holder) -> None:
    answer = holder.call({"text": "hello"})
    assert (answer.status_code, answer.json()) == (200, {"success": True, "output": "hello", "sandbox": holder.id})
    assert last_used.is_in_use(holder.workspace.pk, 60)


def test_a_stopped_sandbox_does_not_run(api: Caller, holder: Holder) -> None:
    api.post(f"/sandbox/{holder.id}/stop")
    answer = holder.call()
    assert_error(answer, 409, "vm_not_running")
    assert answer.json()["details"] == {"status": "stopped"}
    assert holder.workspace.status == Status.STOPPED


@pytest.mark.parametrize("status", [Status.PAUSED, Status.CREATING, Status.STARTING, Status.FAILED, Status.LOST])
def test_one_that_is_not_asleep_is_not_woken(holder: Holder, status: Status) -> None:
    Workspace.objects.update(status=status, ready=False)
    answer = holder.call()
    assert_error(answer, 409, "vm_not_running")
    assert answer.headers.get("Retry-After") == ("2" if status in (Status.CREATING, Status.STARTING) else None)
    assert holder.workspace.status == status


def test_a_request_wakes_a_sleeping_sandbox(holder: Holder, vmhost: FakeHost) -> None:
    put_to_sleep(holder, vmhost)
    assert holder.call().json()["output"] == "hello"
    assert holder.workspace.status == Status.RUNNING


def test_requests_that_come_together_wake_it_once(holder: Holder, vmhost: FakeHost) -> None:
    put_to_sleep(holder, vmhost)
    headers = {"Authorization": f"Bearer {holder.token}"}

    async def run() -> list[asgi.Request]:
        path = f"/s/{holder.id}/files/create"
        requests = [asgi.Request(path, headers, "POST", {"text": str(number)}) for number in range(8)]
        await asyncio.gather(*(request.run() for request in requests))
        return requests

    answers = asyncio.run(run())
    assert [request.status for request in answers] == [200] * 8
    assert sorted(request.json()["output"] for request in answers) == [str(number) for number in range(8)]
    assert Operation.objects.filter(kind="wake").count() == 1


def test_one_that_cannot_be_woken_says_so(holder: Holder, vmhost: FakeHost) -> None:
    put_to_sleep(holder, vmhost)
    vmhost.driver.fail_next("start", CapacityExceeded("The host has not enough free memory."))
    answer = holder.call()
    assert_error(answer, 503, "VM_UNAVAILABLE")
    assert answer["Retry-After"] == "2"


def test_what_refuses_the_wake_is_told(holder: Holder, vmhost: FakeHost) -> None:
    put_to_sleep(holder, vmhost)
    row = holder.workspace
    type(row.namespace).objects.update(status="suspended", suspended_by_quota=True)
    assert_error(holder.call(), 402, "quota_exceeded")
    assert holder.workspace.status == Status.SLEEPING


def test_one_that_is_busy_with_another_operation_is_told(holder: Holder, vmhost: FakeHost) -> None:
    put_to_sleep(holder, vmhost)
    vmhost.hold_tasks()
    power.workspace_stop(workspace=holder.workspace, actor="owner")
    answer = holder.call()
    assert_error(answer, 409, "vm_not_running")
    vmhost.release_tasks()


def test_wrong_fields_and_bodies_are_named(holder: Holder) -> None:
    assert_error(holder.call({"text": 5}), 400, "validation_error")
    assert_error(holder.call([]), 400, "validation_error")
    path, headers = f"/s/{holder.id}/files/create", {"Authorization": f"Bearer {holder.token}"}
    client = Client()
    assert_error(
        client.generic("POST", path, "{", content_type="application/json", headers=headers), 400, "invalid_json"
    )
    raw = client.generic("POST", path, b"abc", content_type="application/octet-stream", headers=headers)
    assert_error(raw, 415, "unsupported_media_type")


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
def test_routes_take_post_only(holder: Holder, method: str) -> None:
    headers = {"Authorization": f"Bearer {holder.token}"}
    answer = Client().generic(method, f"/s/{holder.id}/files/create", "", headers=headers)
    assert_error(answer, 405, "method_not_allowed")


def test_any_page_may_read_the_answers_and_sends_no_cookies(holder: Holder) -> None:
    path = f"/s/{holder.id}/files/create"
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    before = Client().options(path, headers=asked)
    assert before.status_code == 204
    assert before["Access-Control-Allow-Origin"] == "*"
    assert {"authorization", "content-type"} <= set(before["Access-Control-Allow-Headers"].lower().split(", "))
    assert "POST" in before["Access-Control-Allow-Methods"]
    assert before["X-Request-ID"]
    answers = [
        holder.call(Origin="https://page.example"),
        holder.call(token="wrong"),
        holder.call(Host="unknown.example"),
        Client().post(f"/s/{holder.id}/nothing"),
        Client().post(path, content_type="application/json", data="a" * 10, headers={"Content-Length": "999999999"}),
    ]
    assert [answer.status_code for answer in answers] == [200, 401, 400, 404, 413]
    for answer in [before, *answers]:
        assert answer["Access-Control-Allow-Origin"] == "*"
        assert "Access-Control-Allow-Credentials" not in answer
        assert not answer.cookies


def test_the_account_level_is_not_open_to_pages(api: Caller) -> None:
    answer = api.get("/sandbox", Origin="https://page.example")
    assert "Access-Control-Allow-Origin" not in answer
    assert_error(api.send("OPTIONS", "/sandbox"), 405, "method_not_allowed")


def test_written_files_have_the_limit_of_files() -> None:
    base64_of_a_file = configured.FILE_WRITE_LIMIT * 4 // 3
    for route in ("create", "edit", "upload"):
        assert body_limit("POST", f"/s/sbx_a/files/{route}") > base64_of_a_file
        assert not is_streamed("POST", f"/s/sbx_a/files/{route}", "application/octet-stream")
    for path in ("/s/sbx_a/files/list", "/s/sbx_a/terminal", "/s/a/b/files/create", "/sandbox"):
        assert body_limit("POST", path) == configured.BODY_LIMIT


def test_a_large_body_is_stored_for_the_holder_of_the_token_only(holder: Holder) -> None:
    """Larger than what is stored for anybody."""
    path, body = f"/s/{holder.id}/files/create", {"text": "a" * 100_000}

    async def status_of(token: str) -> int:
        request = asgi.Request(path, {"Authorization": f"Bearer {token}"}, "POST", body)
        await request.run()
        assert request.headers["Access-Control-Allow-Origin"] == "*"
        return request.status

    async def run() -> list[int]:
        return [await status_of(token) for token in (holder.token, "wrong", "")]

    assert asyncio.run(run()) == [200, 401, 401]


def test_a_use_keeps_the_sandbox_awake(holder: Holder) -> None:
    before = timezone.now().timestamp()
    holder.call()
    assert last_used.last_used(holder.workspace.pk) >= before - 1
    assert json.loads(holder.call().content)["success"]


def test_calls_of_the_holder_are_counted(api: Caller, holder: Holder) -> None:
    path = f"/workspace/{holder.workspace.pk}/stats"
    before: Any = api.get(path).json()["stats"]["apiCalls"]
    holder.call()
    assert api.get(path).json()["stats"]["apiCalls"] == before + 2
