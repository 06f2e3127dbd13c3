"""Commands whose output is an event stream."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from tests.asgi import Request
from tests.callers import Caller
from tests.common.sse.reading import parse, until
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from vmbackend.errors import GuestUnreachable
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.output import OutputPart
from workspaces import guests
from workspaces.commands import requested, streaming
from workspaces.commands.capacity import command_capacity
from workspaces.commands.views import EVENTS_EXAMPLE
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
BOX = "/workspace/the-box"


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> Iterator[str]:
    """A running workspace; no command has a place when it ends."""
    yield api.post("/workspace", {"slug": "the-box"}).json()["workspace"]["id"]
    assert command_capacity().used == 0


class SlowRequest(Request):
    """One whose client reads only while `reads` is set."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.reads = asyncio.Event()

    async def _send(self, message: dict[str, Any]) -> None:
        await super()._send(message)
        if message.get("body"):
            await self.reads.wait()


def streamed(api: Caller, cmd: Any, kind: type[Request] = Request, **more: Any) -> Any:
    return kind(f"{BOX}/exec", api.headers, "POST", {"cmd": cmd, "stream": True, **more})


def events_in(body: bytes) -> list[tuple[str, Any]]:
    found = [parse(text) for text in body.decode().split("\n\n") if text]
    return [(event.kind, event.data) for event in found if event.kind]


def text_of(events: list[tuple[str, Any]], name: str) -> str:
    return "".join(data["data"] for kind, data in events if kind == name)


def run(api: Caller, cmd: Any, **more: Any) -> list[tuple[str, Any]]:
    request = streamed(api, cmd, **more)
    asyncio.run(asyncio.wait_for(request.run(), 60))
    assert request.status == 200, request.body
    return events_in(request.body)


def refused(request: Request) -> tuple[int, str]:
    asyncio.run(asyncio.wait_for(request.run(), 60))
    return request.status, request.json()["code"]


def test_the_example_of_the_description_is_what_is_sent(api: Caller, made: str) -> None:
    request = streamed(api, "echo one; sleep 0.1; echo two >&2; sleep 0.1; exit 3")
    asyncio.run(request.run())
    assert request.headers["Content-Type"] == "text/event-stream"
    assert request.headers["Cache-Control"] == "no-cache, no-transform"
    assert re.sub(r'(?<="duration_ms":)\d+', "12", request.body.decode()) == EVENTS_EXAMPLE


def test_output_comes_while_the_command_runs(api: Caller, made: str, tmp_path: Path) -> None:
    async def work() -> None:
        request = streamed(api, f"echo one; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo two >&2; exit 4")
        task = asyncio.ensure_future(request.run())
        await until(lambda: b"one" in request.body, 20)
        assert command_capacity().used == 1
        (tmp_path / "go").touch()
        await asyncio.wait_for(task, 20)
        names = [kind for kind, _ in events_in(request.body)]
        assert names == ["stdout", "stderr", "exit"]
        assert events_in(request.body)[-1][1]["exit_code"] == 4

    asyncio.run(work())


def test_a_streamed_command_takes_what_others_take(api: Caller, made: str) -> None:
    events = run(api, 'cat; echo "$A $PWD"', stdin="typed ", env={"A": "x"}, working_dir="/")
    assert text_of(events, "stdout").startswith("typed x /")
    run(api, ["sh", "-c", "echo only err >&2"])
    assert run(api, "true")[0][0] == "exit"


def test_bytes_that_come_apart_are_one_character_and_others_are_replaced(api: Caller, made: str) -> None:
    apart = r"printf '\303'; sleep 0.1; printf '\274'; sleep 0.1; printf 'a\377b\342\202'"
    events = run(api, apart)
    assert text_of(events, "stdout") == "\u00fca\ufffdb\ufffd"
    assert next(data["data"] for kind, data in events if kind == "stdout") == "\u00fc"
    assert events[-1][0] == "exit"


def test_output_has_no_limit_and_nothing_of_it_is_lost(api: Caller, made: str) -> None:
    events = run(api, "seq 1 400000; seq 1 1000 >&2")
    assert text_of(events, "stdout") == "".join(f"{n}\n" for n in range(1, 400_001))
    assert text_of(events, "stderr") == "".join(f"{n}\n" for n in range(1, 1001))


def test_a_command_at_its_timeout_gets_sigterm_and_code_124(api: Caller, made: str, tmp_path: Path) -> None:
    events = run(
        api, f"trap 'echo ending > {tmp_path}/ended; exit 0' TERM; echo begun; sleep 30 & wait", timeout_seconds=1
    )
    assert text_of(events, "stdout") == "begun\n"
    kind, end = events[-1]
    assert (kind, end["exit_code"], end["timed_out"]) == ("exit", 124, True)
    assert (tmp_path / "ended").exists()


def test_one_that_closes_its_output_and_goes_on_is_waited_for(api: Caller, made: str) -> None:
    events = run(api, "echo out; exec >&- 2>&-; sleep 1; exit 7")
    assert [kind for kind, _ in events] == ["stdout", "exit"]
    assert (events[-1][1]["exit_code"], events[-1][1]["duration_ms"] >= 1000) == (7, True)


def test_a_command_ends_when_its_client_disconnects(api: Caller, made: str, tmp_path: Path) -> None:
    async def work() -> None:
        request = streamed(
            api, f"cd {tmp_path}; trap 'echo ended > ended; exit' TERM; echo $$ > pid; echo begun; sleep 30 & wait"
        )
        task = asyncio.ensure_future(request.run())
        await until(lambda: b"begun" in request.body, 20)
        request.leave()
        await asyncio.wait_for(asyncio.wait([task]), 5)
        await until(lambda: command_capacity().used == 0 and (tmp_path / "ended").exists(), 10)
        await until(lambda: not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists(), 10)

    asyncio.run(work())


def test_one_that_ignores_sigterm_is_killed_when_its_client_disconnects(api: Caller, made: str, tmp_path: Path) -> None:
    async def work() -> None:
        request = streamed(api, f"trap '' TERM; echo $$ > {tmp_path}/pid; yes")
        task = asyncio.ensure_future(request.run())
        await until(lambda: len(request.body) > 100_000, 20)
        request.leave()
        await asyncio.wait_for(asyncio.wait([task]), 5)
        await until(lambda: not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists(), 10)

    asyncio.run(work())


def test_a_client_that_leaves_before_the_command_runs_leaves_nothing(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, ended = [], []

    async def never(*args: Any, **more: Any) -> Any:
        waiting.append(True)
        try:
            await asyncio.sleep(60)
            yield OutputPart("stdout", b"")
        finally:
            ended.append(True)

    monkeypatch.setattr(FakeGuestSession, "execute_streamed", never)

    async def work() -> None:
        request = streamed(api, "true")
        task = asyncio.ensure_future(request.run())
        await until(lambda: waiting, 20)
        request.leave()
        await asyncio.wait_for(asyncio.wait([task]), 5)
        await until(lambda: ended and command_capacity().used == 0, 10)

    asyncio.run(work())


def test_a_reader_that_does_not_read_stops_the_command_and_loses_nothing(
    api: Caller, made: str, tmp_path: Path
) -> None:
    counted = tmp_path / "count"

    async def work() -> None:
        slow = streamed(
            api,
            f"i=0; while [ $i -lt 120 ]; do i=$((i+1)); head -c 9999 /dev/zero; echo; echo $i > {tmp_path}/count; done",
            SlowRequest,
        )
        task = asyncio.ensure_future(slow.run())
        await until(lambda: slow.body, 20)
        await asyncio.sleep(0.5)
        stopped = counted.read_text()
        await asyncio.sleep(0.5)
        assert counted.read_text() == stopped
        assert int(stopped) < 60  # 600 KB: the pipe, the stream's reader, a part or two
        slow.reads.set()
        await asyncio.wait_for(task, 30)
        events = events_in(slow.body)
        assert len(text_of(events, "stdout")) == 120 * 10_000
        assert events[-1][1]["exit_code"] == 0

    asyncio.run(work())


def test_a_reader_that_never_reads_holds_no_place_after_the_deadline(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requested, "EXEC_SLACK_SECONDS", 0.5)

    async def work() -> None:
        slow = streamed(api, "yes", SlowRequest, timeout_seconds=1)
        task = asyncio.ensure_future(slow.run())
        await until(lambda: slow.body, 20)
        await until(lambda: command_capacity().used == 0, 10)
        assert not task.done()
        slow.reads.set()
        await asyncio.wait_for(task, 10)
        kind, error = events_in(slow.body)[-1]
        assert (kind, error["code"], error["status"], error["success"]) == ("error", "output_not_read", 408, False)

    asyncio.run(work())


def test_a_silent_command_sends_heartbeats_and_holds_its_place(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "HEARTBEAT_SECONDS", 0.1)
    request = streamed(api, "sleep 0.5")
    asyncio.run(request.run())
    assert request.body.count(b": heartbeat\n\n") >= 2
    assert [kind for kind, _ in events_in(request.body)] == ["exit"]


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
    api: Caller, made: str, body: dict[str, Any], status: int, code: str
) -> None:
    assert refused(Request(f"{BOX}/exec", api.headers, "POST", {"stream": True, **body})) == (status, code)


def test_of_a_workspace_that_does_not_run_nothing_is_streamed(api: Caller) -> None:
    row = make_workspace(api.account, status=Status.STOPPED)
    request = Request(f"/workspace/{row.pk}/exec", api.headers, "POST", {"cmd": "true", "stream": True})
    assert refused(request) == (409, "vm_not_running")


def test_a_stranger_gets_no_stream(stranger: Caller, made: str) -> None:
    assert refused(streamed(stranger, "true")) == (404, "not_found")


def test_a_machine_that_goes_away_is_the_last_event(api: Caller, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
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
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch, now: Status | None, code: str
) -> None:
    monkeypatch.setattr(guests, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(streaming, "revoked_grants", lambda grants: {})

    def change() -> None:
        row = Workspace.objects.filter(pk=made)
        _ = row.delete() if now is None else row.update(status=now)
        connections.close_all()

    async def work() -> None:
        request = streamed(api, "echo begun; sleep 30")
        task = asyncio.ensure_future(request.run())
        await until(lambda: b"begun" in request.body, 20)
        await asyncio.to_thread(change)
        await asyncio.wait_for(task, 10)
        kind, error = events_in(request.body)[-1]
        assert (kind, error["code"]) == ("error", code)

    asyncio.run(work())


def test_a_revoked_credential_ends_its_commands(api: Caller, made: str) -> None:
    def revoke() -> None:
        api.account.credentials.update(epoch=99)
        connections.close_all()

    async def work() -> None:
        request = streamed(api, "echo begun; sleep 30")
        task = asyncio.ensure_future(request.run())
        await until(lambda: b"begun" in request.body, 20)
        await asyncio.to_thread(revoke)
        began = time.monotonic()
        await asyncio.wait_for(task, 10)
        kind, error = events_in(request.body)[-1]
        assert (kind, error["code"], error["status"]) == ("error", "unauthorized", 401)
        assert time.monotonic() - began < 10

    asyncio.run(work())


def test_a_streamed_command_counts_among_those_of_its_account(
    api: Caller, made: str, tmp_path: Path, settings: Any
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
