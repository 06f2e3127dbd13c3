"""Requests for tasks that are wrong, cut off, too many, or whose workspace ends under them: nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from tests.asgi import Request
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.vmbackend.hold_guests import Guests
from tests.vmbackend.local_dropbear import missing_requirement
from tests.workspaces.runtime.conftest import Holder
from tests.workspaces.runtime.task_events import bearer, follow_stream, start_stream, told, until_told
from tests.workspaces.runtime.test_tokens import suspend
from workspaces.commands.capacity import command_capacity

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools"),
]
MIB = 1 << 20
RAW = "application/octet-stream"


@pytest.fixture(autouse=True)
def places() -> Iterator[None]:
    """Every place of an account for commands is given back."""
    assert command_capacity().used == 0
    yield
    assert command_capacity().used == 0


class Broken(Request):
    """A request whose body breaks off after its first half."""

    async def _receive(self) -> dict[str, Any]:
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": self._data[: len(self._data) // 2], "more_body": True}
        return {"type": "http.disconnect"}


class Stopped(Request):
    """A request whose client reads nothing after the first event, until it is told to."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self.reads = asyncio.Event()

    async def _send(self, message: dict[str, Any]) -> None:
        await super()._send(message)
        if len(self.body) > 100:
            await self.reads.wait()


def execute(holder: Holder, **body: Any) -> Any:
    return holder.send("POST", "/exec", data=json.dumps(body), content_type="application/json")


async def begun(holder: Holder, script: str) -> tuple[Request, asyncio.Task[None], str]:
    """A stream with its task."""
    request = start_stream(holder, script)
    running = asyncio.create_task(request.run())
    found = await until_told(request, lambda found: bool(found.events))
    return request, running, found.events[0].data["task_id"]


async def left(request: Request, running: asyncio.Task[None]) -> None:
    request.leave()
    await asyncio.wait_for(running, 30)


@pytest.mark.parametrize(
    "body",
    [
        {"cmd": "echo \ud800"},
        {"cmd": ["echo", "\udc80"]},
        {"cmd": "true", "env": {"A": "\ud800"}},
        {"cmd": "true", "user": "\ud800"},
        {"cmd": "true", "working_dir": "/\ud800"},
        {"cmd": "true", "env": {"A": "a\0"}},
        {"cmd": "true", "working_dir": {"encoded": "%00"}},
        {"cmd": ["x" * (64 * 1024 + 1)]},
        {"cmd": "true", "user": "\N{EURO SIGN}" * 30},
        {"cmd": "true", "timeout_seconds": 1e999},
        {"cmd": "true", "timeout_seconds": True},
        {"cmd": "true", "ttl_seconds": 10**30},
        {"cmd": {"a": 1}},
        {"cmd": None},
        [],
        "x",
    ],
)
@pytest.mark.parametrize("route", ["/exec", "/exec/stream"])
def test_texts_that_no_command_has_are_wrong(holder: Holder, guests: Guests, route: str, body: Any) -> None:
    answer = holder.send("POST", route, data=json.dumps(body), content_type="application/json")
    assert answer.status_code == 400, answer.content
    assert answer.json()["code"] in ("validation_error", "command_invalid", "invalid_json")


def test_words_of_64_kib_and_bytes_that_are_no_text_are_executed(holder: Holder, guests: Guests) -> None:
    word = "x" * (64 * 1024 - 20)
    task = execute(holder, cmd=["printf", "%s", word]).json()
    assert task["stdout"] == word
    assert len("".join(task["command"])) == 4096
    path = {"encoded": "/tmp/%FF%FE-not-there"}
    assert execute(holder, cmd="true", working_dir=path).json()["status"] == "failed"


@pytest.mark.parametrize(
    "header",
    ["0-0", "9" * 18 + "-0", "1-" + "9" * 18, "1-" + "9" * 30, "1-0-0", "-", "\xff", "1" * 9000, "1 -0", "+1-0"],
)
def test_ids_of_events_that_are_none_are_refused(holder: Holder, guests: Guests, header: str) -> None:
    task = execute(holder, cmd="true").json()["id"]
    answer = holder.get(f"/exec/stream?task_id={task}", headers={"Last-Event-ID": header.replace("1-", f"{task}-")})
    assert answer.status_code in (400, 431), answer.content


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("task_id={id}&offset=" + "9" * 30, 400),
        ("task_id={id}&offset=" + "9" * 5000, 400),
        ("task_id={id}&offset=1e3", 400),
        ("task_id={id}&offset=%00", 400),
        ("task_id=" + "9" * 5000, 400),
        ("task_id=\N{ARABIC-INDIC DIGIT ONE}", 400),
        ("task_id={id}%0a1", 400),
        ("task_id=0", 404),
        ("task_id=999999999999999999", 404),
    ],
)
def test_numbers_that_no_task_has_are_refused(holder: Holder, guests: Guests, query: str, status: int) -> None:
    task = execute(holder, cmd="true").json()["id"]
    assert holder.get(f"/exec/stream?{query.format(id=task)}").status_code == status


def test_a_value_that_is_given_twice_is_one_of_both_or_refused(holder: Holder, guests: Guests) -> None:
    task = execute(holder, cmd="true").json()["id"]
    assert holder.get(f"/exec/stream?task_id={task}&task_id=999999").status_code in (400, 404)
    assert holder.get(f"/exec/stream?task_id={task}&offset=0&offset=x").status_code == 400


def test_input_that_breaks_off_or_is_too_much_reaches_nobody(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        request, running, task = await begun(holder, "cat")
        path = f"/r/exec/{task}/input"
        await asyncio.wait_for(Broken(path, bearer(holder), "POST", b"x" * 5000).run(), 30)
        large = Request(path, bearer(holder), "POST", b"x" * (MIB + 1))
        await large.run()
        assert (large.status, large.json()["code"]) == (413, "payload_too_large")
        coded = Request(path, bearer(holder) | {"Content-Encoding": "gzip"}, "POST", b"\x1f\x8bx")
        await coded.run()
        twice = Request(f"{path}?eof=maybe", bearer(holder), "POST", b"x")
        await twice.run()
        assert twice.status == 400
        ending = Request(f"{path}?eof=true", bearer(holder), "POST", b"end")
        await ending.run()
        assert ending.status == 200
        await asyncio.wait_for(running, 30)
        wanted = b"end" if coded.status >= 400 else b"\x1f\x8bxend"
        assert told(request.body).output() == wanted

    asyncio.run(work())


@pytest.mark.parametrize("pause", [0, 0.01, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("route", ["/r/exec", "/r/exec/stream"])
def test_a_client_may_leave_at_any_moment(holder: Holder, guests: Guests, route: str, pause: float) -> None:
    async def work() -> None:
        requests = [Request(route, bearer(holder), "POST", {"cmd": "yes"}) for _ in range(3)]
        running = [asyncio.create_task(each.run()) for each in requests]
        await asyncio.sleep(pause)
        for each in requests:
            each.leave()
        await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 60)
        for _ in range(500):
            if not command_capacity().used:
                break
            await asyncio.sleep(0.02)

    asyncio.run(work())
    assert {task["status"] for task in holder.get("/exec").json()["tasks"]} <= {"running", "pending"}
    assert holder.send("DELETE", "/exec").status_code == 200


def test_twenty_starts_at_once_get_the_places_that_there_are(holder: Holder, guests: Guests, settings: Any) -> None:
    settings.ENV = settings.ENV.model_copy(update={"runtime_tasks_max": 5})

    async def work() -> None:
        requests = [Request("/r/exec", bearer(holder), "POST", {"cmd": "sleep 3"}) for _ in range(20)]
        await asyncio.wait_for(asyncio.gather(*(each.run() for each in requests)), 90)
        found = [each.status for each in requests]
        assert set(found) == {200, 429}
        assert found.count(200) >= 5
        assert all(each.json()["code"] == "rate_limited" for each in requests if each.status == 429)
        assert all(int(each.headers["Retry-After"]) > 0 for each in requests if each.status == 429)

    asyncio.run(work())


def test_all_are_removed_under_their_streams(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        streams = [await begun(holder, "echo one; sleep 600") for _ in range(4)]
        again = [follow_stream(holder, task) for _, _, task in streams]
        following = [asyncio.create_task(each.run()) for each in again]
        for each in again:
            await until_told(each, lambda found: found.output() == b"one\n")
        removal = Request("/r/exec", bearer(holder), "DELETE")
        await removal.run()
        assert removal.json() == {"success": True, "deleted": 4}
        await asyncio.wait_for(asyncio.gather(*(running for _, running, _ in streams), *following), 30)
        for each in [*(request for request, _, _ in streams), *again]:
            assert (told(each.body).end["exit_code"], told(each.body).output()) == (137, b"one\n")

    asyncio.run(work())


@pytest.mark.parametrize("ending", ["delete", "suspend"])
def test_streams_end_with_their_workspace_and_not_softly(
    api: Caller, holder: Holder, guests: Guests, vmhost: FakeHost, ending: str
) -> None:
    async def work() -> None:
        request, running, task = await begun(holder, "echo one; sleep 600")
        other = Request("/r/exec", bearer(holder), "POST", {"cmd": "sleep 600"})
        waiting = asyncio.create_task(other.run())
        await until_told(request, lambda found: found.output() == b"one\n")
        assert task
        if ending == "delete":
            assert (await sync_to_async(api.delete)(f"/workspace/{holder.id}")).status_code == 200
        else:
            await sync_to_async(suspend)(await sync_to_async(lambda: holder.workspace)())
        done, _ = await asyncio.wait({running, waiting}, timeout=40)
        assert running in done
        assert told(request.body).names[-1] != "exit"
        await left(other, waiting)
        assert other.status != 500

    asyncio.run(work())


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_clients_that_do_not_read_cost_their_windows_and_stop_no_other_task(holder: Holder, guests: Guests) -> None:
    async def work() -> None:
        await Request("/r/exec", bearer(holder), "POST", {"cmd": "true"}).run()
        before = resident()
        stopped = [Stopped("/r/exec/stream", bearer(holder), "POST", {"cmd": "yes"}) for _ in range(6)]
        running = [asyncio.create_task(each.run()) for each in stopped]
        for each in stopped:
            await until_told(each, lambda found: len(found.events) > 1)
        await asyncio.sleep(2)
        for _ in range(3):
            other = Request("/r/exec", bearer(holder), "POST", {"cmd": "seq 1 20000"})
            await asyncio.wait_for(other.run(), 20)
            assert (other.status, other.json()["exit_code"]) == (200, 0)
        assert resident() - before < 24 * MIB
        for each in stopped:
            each.reads.set()
            each.leave()
        await asyncio.wait_for(asyncio.gather(*running), 30)

    asyncio.run(work())
