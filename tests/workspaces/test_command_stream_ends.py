"""Commands whose output is an event stream: what refuses them, and what ends them before their time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction

from tests.asgi import Request
from tests.callers import Caller
from tests.common.sse.reading import until
from tests.workspaces.command_streams import BOX, events_in, refused, run, streamed, text_of
from tests.workspaces.rows import make_workspace
from vmbackend.errors import GuestUnreachable
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.output import OutputPart
from workspaces import guests
from workspaces.commands import streaming
from workspaces.commands.capacity import command_capacity
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"cmd": ["/no/such/program"]}, 400, "command_invalid"),
        ({"cmd": "true", "user": "no-such-user"}, 400, "command_invalid"),
        ({"cmd": "true", "stream": "yes"}, 400, "validation_error"),
        ({"cmd": [], "stream": True}, 400, "validation_error"),
    ],
)
def test_what_is_wrong_before_the_command_runs_is_an_error_response(
    api: Caller, box: str, body: dict[str, Any], status: int, code: str
) -> None:
    assert refused(Request(f"{BOX}/exec", api.headers, "POST", {"stream": True, **body})) == (status, code)


def test_of_a_workspace_that_does_not_run_nothing_is_streamed(api: Caller) -> None:
    row = make_workspace(api.account, status=Status.STOPPED)
    request = Request(f"/workspace/{row.pk}/exec", api.headers, "POST", {"cmd": "true", "stream": True})
    assert refused(request) == (409, "vm_not_running")


def test_a_stranger_gets_no_stream(stranger: Caller, box: str) -> None:
    assert refused(streamed(stranger, "true")) == (404, "not_found")


def test_a_machine_that_goes_away_is_the_last_event(api: Caller, box: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*args: Any, **more: Any) -> Any:
        yield OutputPart("stdout", b"begun\xc3")
        raise GuestUnreachable("The connection was lost.")

    monkeypatch.setattr(FakeGuestSession, "execute_streamed", broken)
    events = run(api, "true")
    assert text_of(events, "stdout") == "begun\ufffd"
    kind, error = events[-1]
    assert (kind, error["code"], error["status"]) == ("error", "VM_UNAVAILABLE", 503)
    assert error["message"] == "The connection was lost."


def test_a_fault_of_the_platform_is_an_event_without_its_text(
    api: Caller, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def faulty(*args: Any, **more: Any) -> Any:
        yield OutputPart("stdout", b"begun")
        raise KeyError("internal")

    monkeypatch.setattr(FakeGuestSession, "execute_streamed", faulty)
    kind, error = run(api, "true")[-1]
    assert (kind, error["code"]) == ("error", "internal_error")
    assert "KeyError" not in json.dumps(error)


@pytest.mark.parametrize(("now", "code"), [(Status.STOPPED, "vm_not_running"), (None, "not_found")])
def test_a_stream_ends_with_its_machine(
    api: Caller, box: str, monkeypatch: pytest.MonkeyPatch, now: Status | None, code: str
) -> None:
    monkeypatch.setattr(guests, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(streaming, "revoked_grants", lambda grants: {})

    def change() -> None:
        row = Workspace.objects.filter(pk=box)
        with transaction.atomic():  # locked, as usage of it may come at any time
            _ = row.select_for_update().get().delete() if now is None else row.update(status=now)
        connections.close_all()

    kind, error = asyncio.run(last_event(api, change))
    assert (kind, error["code"]) == ("error", code)


def test_a_revoked_credential_ends_its_commands(api: Caller, box: str) -> None:
    def revoke() -> None:
        api.account.credentials.update(epoch=99)
        connections.close_all()

    kind, error = asyncio.run(last_event(api, revoke))
    assert (kind, error["code"], error["status"]) == ("error", "unauthorized", 401)


async def last_event(api: Caller, change: Callable[[], None]) -> tuple[str, Any]:
    """Of a command that runs when `change` is called."""
    request = streamed(api, "echo begun; sleep 30")
    task = asyncio.ensure_future(request.run())
    await until(lambda: b"begun" in request.body, 20)
    await asyncio.to_thread(change)
    await asyncio.wait_for(task, 10)
    kind, data = events_in(request.body)[-1]
    return kind, data


def test_a_streamed_command_counts_among_those_of_its_account(
    api: Caller, box: str, tmp_path: Path, settings: Any
) -> None:
    settings.ENV = settings.ENV.model_copy(update={"commands_per_account": 1})
    command_capacity.cache_clear()

    async def work() -> None:
        request = streamed(api, f"echo begun; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done")
        task = asyncio.ensure_future(request.run())
        await until(lambda: b"begun" in request.body, 20)
        second = streamed(api, "true")
        await second.run()
        assert (second.status, second.json()["code"]) == (429, "rate_limited")
        assert int(second.headers["Retry-After"]) > 0
        (tmp_path / "go").touch()
        await asyncio.wait_for(task, 20)

    asyncio.run(work())
    command_capacity.cache_clear()
