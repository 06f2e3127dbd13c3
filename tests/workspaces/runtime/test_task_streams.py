"""The event streams of tasks: every byte once, resumed at an offset, cut off and never ended softly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.asgi import Request
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder
from tests.workspaces.runtime.task_events import (
    bearer,
    follow_stream,
    read_stream,
    start_stream,
    told,
    until_told,
)
from workspaces.commands.capacity import command_capacity
from workspaces.runtime.tasks import streaming
from workspaces.runtime.tasks.views import EVENTS_EXAMPLE

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]


def numbers(last: int) -> bytes:
    return b"".join(b"%d\n" % line for line in range(1, last + 1))


def test_the_example_of_the_description_is_what_is_sent(holder: Holder, guests: Guests) -> None:
    request = start_stream(holder, "echo one")
    found = read_stream(request)
    task, pid = found.events[0].data["task_id"], found.end["pid"]
    assert request.headers["Content-Type"] == "text/event-stream"
    assert request.headers["Cache-Control"] == "no-cache, no-transform"
    example = EVENTS_EXAMPLE.replace('"task_id":"7"', f'"task_id":"{task}"').replace("id: 7-", f"id: {task}-")
    assert request.body.decode() == example.replace("212", str(pid))


def test_a_large_output_comes_whole_and_its_offsets_count_it(holder: Holder, guests: Guests) -> None:
    found = read_stream(start_stream(holder, "seq 1 200000; echo error >&2; exit 7"))
    assert (found.output() == numbers(200000), found.output("stderr"), found.gone) == (True, b"error\n", 0)
    assert found.end["exit_code"] == 7
    task = found.events[0].data["task_id"]
    assert found.events[-1].id == f"{task}-{len(numbers(200000)) + 6}"


def test_output_comes_while_the_task_runs_and_input_reaches_it(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        request = start_stream(holder, "cat; echo end >&2")
        running = asyncio.ensure_future(request.run())
        task = (await until_told(request, lambda found: bool(found.events))).events[0].data["task_id"]
        for data, eof in ((b"one\n", ""), (b"two\n", "?eof=true")):
            given = Request(f"/r/exec/{task}/input{eof}", bearer(holder), "POST", data)
            await given.run()
            assert (given.status, given.json()) == (200, {"success": True, "bytes_written": 4})
            await until_told(request, lambda found, data=data: data in found.output())  # type: ignore[misc]
        await running
        found = told(request.body)
        assert (found.output(), found.output("stderr"), found.end["status"]) == (b"one\ntwo\n", b"end\n", "exited")

    asyncio.run(work())


def test_a_client_that_leaves_ends_nothing_and_goes_on_where_it_was(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        first = start_stream(holder, "seq 1 50000; read go; seq 1 50000")
        running = asyncio.ensure_future(first.run())
        found = await until_told(first, lambda found: found.output() == numbers(50000))
        first.leave()
        await running
        assert found.names[-1] != "exit"
        assert command_capacity().used == 0
        task, last = found.events[0].data["task_id"], found.events[-1].id
        await Request(f"/r/exec/{task}/input", bearer(holder), "POST", b"\n").run()
        second = follow_stream(holder, task, last=last)
        await second.run()
        rest = told(second.body)
        assert (rest.output() == numbers(50000), rest.gone, rest.end["exit_code"]) == (True, 0, 0)
        whole = follow_stream(holder, task)
        await whole.run()
        assert told(whole.body).output() == numbers(50000) * 2
        middle = follow_stream(holder, task, offset=len(numbers(50000)) + 2, last=last)
        await middle.run()
        assert told(middle.body).output() == numbers(50000)[2:]

    asyncio.run(work())


def test_a_task_whose_keeper_died_is_interrupted(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        first = start_stream(holder, "read go; seq 1 500000")
        running = asyncio.ensure_future(first.run())
        task = (await until_told(first, lambda found: bool(found.events))).events[0].data["task_id"]
        first.leave()
        await running
        guests.of(holder.id).process.kill()
        guests.of(holder.id).process.wait()
        found = follow_stream(holder, task)
        await found.run()
        assert told(found.body).end == {
            "exit_code": -1, "pid": told(found.body).end["pid"], "status": "failed", "error": "interrupted",
        }  # fmt: skip

    asyncio.run(work())


def test_the_gap_is_what_is_missing(holder: Holder, guests: Guests, settings: Any) -> None:
    settings.ENV = settings.ENV.model_copy(update={"runtime_log_bytes": 1 << 20})
    task = holder.send("POST", "/exec", data='{"cmd": "seq 1 500000"}', content_type="application/json").json()["id"]
    found = read_stream(follow_stream(holder, task))
    everything = numbers(500000)
    assert found.names[:2] == ["task_id", "gap"]
    assert found.gone > len(everything) - (1 << 20)
    assert found.output() == everything[found.gone :]
    assert holder.get(f"/exec/{task}").json()["log_truncated"]


@pytest.mark.parametrize("last", ["1-0", "x", "1", "1-2-3"])
def test_the_id_of_another_tasks_event_is_refused(holder: Holder, guests: Guests, last: str) -> None:
    task = [read_stream(start_stream(holder, "true")) for _ in range(2)][-1].events[0].data["task_id"]
    request = follow_stream(holder, task, last=last)
    asyncio.run(request.run())
    assert (request.status, request.json()["code"]) == (400, "validation_error")


@pytest.mark.parametrize("query", ["", "task_id=x", "task_id=1&offset=-1", "task_id=1&offset=x"])
def test_wrong_queries_are_refused(holder: Holder, guests: Guests, query: str) -> None:
    answer = holder.get(f"/exec/stream?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")


def test_an_offset_beyond_the_output_is_refused(holder: Holder, guests: Guests) -> None:
    task = read_stream(start_stream(holder, "echo one")).events[0].data["task_id"]
    answer = holder.get(f"/exec/stream?task_id={task}&offset=5")
    assert answer.status_code == 400
    assert read_stream(follow_stream(holder, task, offset=4)).names == ["task_id", "exit"]


def test_a_quiet_stream_has_heartbeats(holder: Holder, guests: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "HEARTBEAT_SECONDS", 0.1)
    request = start_stream(holder, "sleep 1; echo one")
    found = read_stream(request)
    assert request.body.count(b": heartbeat\n\n") >= 3
    assert found.output() == b"one\n"


@pytest.mark.parametrize("ending", ["rotate", "disable"])
def test_a_stream_ends_within_a_second_of_its_token(api: Caller, holder: Holder, guests: Guests, ending: str) -> None:
    async def work() -> None:
        request = start_stream(holder, "echo one; sleep 600")
        running = asyncio.ensure_future(request.run())
        await until_told(request, lambda found: found.output() == b"one\n")
        path = {"rotate": "token", "disable": "disable"}[ending]
        answer = await sync_to_async(api.post)(f"/workspace/{holder.id}/runtime-api-access/{path}")
        assert answer.status_code == 200
        done, _ = await asyncio.wait({running}, timeout=10)
        assert done
        assert told(request.body).names[-1] != "exit"
        assert command_capacity().used == 0

    asyncio.run(work())


def test_a_stream_ends_with_its_machine_and_not_softly(
    api: Caller, holder: Holder, guests: Guests, vmhost: FakeHost
) -> None:
    async def work() -> None:
        request = start_stream(holder, "echo one; sleep 600")
        running = asyncio.ensure_future(request.run())
        await until_told(request, lambda found: found.output() == b"one\n")
        await sync_to_async(api.post)(f"/workspace/{holder.id}/stop")
        await asyncio.wait({running}, timeout=30)
        assert running.done()
        assert told(request.body).names[-1] != "exit"

    asyncio.run(work())
