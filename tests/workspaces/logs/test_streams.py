"""The event stream routes: stats and logs as they come, who may read them, and for how long."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from common.errors import VMUnavailable
from common.redis import redis_client
from tests.callers import Caller
from tests.common.sse.reading import Frame
from tests.fakehost import FakeHost
from tests.workspaces.logs.streaming import BOOT, BOX, CMD, STATS, call, opened, run
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import bring
from workspaces import last_used
from workspaces.logs.console import Console
from workspaces.models import Workspace
from workspaces.states import Status
from workspaces.streams import sources

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("quick")]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def lines(frames: list[Frame]) -> list[str]:
    return [frame.data["line"] for frame in frames]


def test_stats_come_once_a_second(api: Caller, made: str) -> None:
    async def work() -> None:
        async with opened(api, STATS) as client:
            frames = await client.take(3)
        shown = (await call(api.get, f"{BOX}/details")).json()["stats"]
        percentages = {"cpu_usage", "memory_usage", "disk_usage"}
        assert all(set(frame.data) == set(shown) | percentages for frame in frames)
        assert [frame.kind for frame in frames] == ["message"] * 3
        assert frames[2].data["uptime"] >= frames[0].data["uptime"]

    run(work)


def test_stats_of_a_workspace_that_does_not_run_are_zeros(api: Caller, vmhost: FakeHost, made: str) -> None:
    bring(api, vmhost, made, Status.STOPPED)

    async def work() -> None:
        async with opened(api, STATS) as client:
            found = (await client.next()).data
            assert (found["cpuUsage"], found["uptime"]) == (0, 0)

    run(work)


def test_the_console_comes_with_its_last_lines_first(api: Caller, made: str, console: Any) -> None:
    console(b"".join(b"line %d\n" % number for number in range(200)))

    async def work() -> None:
        async with opened(api, BOOT) as client, opened(api, f"{BOOT}?tail_lines=2") as short:
            assert lines(await client.take(100)) == [f"line {number}" for number in range(100, 200)]
            assert lines(await short.take(2)) == ["line 198", "line 199"]
            console(b"and \xff on\n")
            for one in (client, short):
                frame = await one.next()
                assert frame.data["line"] == "and \ufffd on"
                assert frame.data["timestamp"].endswith("Z")
                assert (frame.data["stream"], frame.data["source"]) == ("console", "boot")

    run(work)


def test_the_console_of_a_start_is_seen_from_before_it(api: Caller, vmhost: FakeHost, made: str) -> None:
    bring(api, vmhost, made, Status.STOPPED)

    async def work() -> None:
        async with opened(api, f"{BOOT}?tail_lines=0") as client:
            await asyncio.sleep(2.5)  # vmhost has seen that somebody reads
            await call(api.post, f"{BOX}/start")
            assert lines([await client.next(10)]) == ["booted"]

    run(work)


def test_the_console_is_written_again_after_vmhost_died(api: Caller, vmhost: FakeHost, made: str, console: Any) -> None:
    async def work() -> None:
        async with opened(api, BOOT) as client:
            assert lines(await client.take(1)) == ["booted"]
            await call(vmhost.runtime.stop)
            console(b"while no stream was open\n")
            await call(vmhost.start)
            console(b"after\n")
            assert lines([await client.next(15) for _ in range(2)]) == ["while no stream was open", "after"]

    run(work)


def test_a_program_is_followed_through_rotation(api: Caller, log: Path) -> None:
    log.write_bytes(b"before\n")

    async def work() -> None:
        async with opened(api, CMD) as client:
            first = await client.next()
            assert (first.data["line"], first.data["timestamp"]) == ("before", None)
            append(log, b"one\n")
            live = await client.next()
            assert (live.data["line"], live.data["stream"], live.data["source"]) == ("one", "stdout", "cmd")
            assert live.data["timestamp"].endswith("Z")
            append(log, b"two\n")
            log.replace(log.with_name("cmd.log.1"))
            append(log, b"three\n")
            assert lines(await client.take(2)) == ["two", "three"]

    run(work)


def test_a_workload_is_a_source_too_and_an_unknown_one_is_404(api: Caller, log: Path) -> None:
    append(log.with_name("web.log"), b"hello\n")

    async def work() -> None:
        async with opened(api, f"{BOX}/logs/stream/web") as client:
            assert (await client.next()).data["source"] == "web"

    run(work)
    answer = api.get(f"{BOX}/logs/stream/none")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "boot, cmd, web" in answer.json()["message"]


def test_one_follower_serves_every_client_and_ends_with_the_last(
    api: Caller, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    size = sources.GuestFiles.size

    async def counted(self: Any, age: int) -> int | None:
        looks.append(age)
        return await size(self, age)

    monkeypatch.setattr(sources.GuestFiles, "size", counted)
    monkeypatch.setattr(sources, "POLL_SECONDS", 0.2)

    async def watched(clients: int) -> int:
        started: list[Any] = [opened(api, CMD) for _ in range(clients)]
        for one in started:
            await one.__aenter__()
        await asyncio.sleep(0.5)
        before = len(looks)
        await asyncio.sleep(1)
        during = len(looks) - before
        for one in started:
            await one.__aexit__(None, None, None)
        return during

    async def work() -> None:
        append(log, b"x\n")
        one, many = await watched(1), await watched(12)
        assert 0 < many <= 2 * one
        after = len(looks)
        await asyncio.sleep(0.5)
        assert len(looks) == after

    run(work)


def test_a_client_that_comes_back_misses_nothing(api: Caller, log: Path) -> None:
    async def work() -> None:
        async with opened(api, CMD) as watcher:
            append(log, b"one\ntwo\nthree\n")
            seen = (await watcher.take(2))[-1]
            async with opened(api, CMD, Last_Event_ID=str(seen.id)) as client:
                append(log, b"four\n")
                assert lines(await client.take(2)) == ["three", "four"]
            async with opened(api, CMD, Last_Event_ID="nonsense") as client:
                assert (await client.next()).kind == "gap"
                assert lines(await client.take(4)) == ["one", "two", "three", "four"]

    run(work)


def test_a_stream_continues_when_its_workspace_starts_again(
    api: Caller, vmhost: FakeHost, made: str, log: Path
) -> None:
    append(log, b"one\n")

    async def work() -> None:
        async with opened(api, CMD) as client:
            await client.take(1)
            await call(bring, api, vmhost, made, Status.STOPPED)
            await asyncio.sleep(0.3)
            append(log, b"last words\n")
            await call(api.post, f"{BOX}/start")
            assert lines([await client.next(30)]) == ["last words"]

    run(work)


def test_a_clear_is_published_to_open_streams_and_no_earlier_line_follows_it(
    api: Caller, log: Path, console: Any
) -> None:
    append(log, b"secret\n")

    async def work() -> None:
        async with opened(api, CMD) as cmd, opened(api, BOOT) as boot:
            await cmd.take(1)
            await boot.take(1)
            assert (await call(api.delete, f"{BOX}/logs")).status_code == 200
            for client in (cmd, boot):
                frame = await client.next()
                assert (frame.kind, frame.data) == ("message", {"cleared": True})
            append(log, b"new\n")
            console(b"new\n")
            assert [lines([await client.next(10)]) for client in (cmd, boot)] == [["new"], ["new"]]
            async with opened(api, CMD) as later:
                assert [frame.data.get("line") for frame in await later.take(2)] == [None, "new"]

    run(work)


def test_a_clear_that_fails_leaves_streams_that_go_on(api: Caller, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(log, b"one\n")

    async def silent(self: Console) -> None:
        raise VMUnavailable

    monkeypatch.setattr(Console, "clear", silent)

    async def work() -> None:
        async with opened(api, CMD) as client:
            await client.take(1)
            assert (await call(api.delete, f"{BOX}/logs")).status_code == 503
            append(log, b"two\n")
            received = [(frame.kind, frame.data.get("line")) for frame in await client.take(2)]
            assert received == [("gap", None), ("message", "two")]

    run(work)


def test_reading_a_programs_log_is_a_use_and_reading_stats_or_the_console_is_not(api: Caller, log: Path) -> None:
    workspace_id = Workspace.objects.get(slug="the-box").pk

    async def used(path: str) -> bool:
        await call(redis_client().delete, last_used._key(workspace_id))
        async with opened(api, path):
            await asyncio.sleep(1.2)
        return bool(await call(last_used.last_used, workspace_id) > 0)

    async def work() -> None:
        assert [await used(path) for path in (STATS, BOOT, CMD)] == [False, False, True]

    run(work)


def test_a_workspace_without_a_host_yet_has_a_quiet_console(api: Caller) -> None:
    row = make_workspace(api.account, status=Status.QUEUED)

    async def work() -> None:
        async with opened(api, f"/workspace/{row.pk}/logs/stream/boot") as client:
            assert await client.nothing()

    run(work)


def test_many_stats_streams_ask_the_database_once(api: Caller, django_assert_num_queries: Any) -> None:
    rows = [make_workspace(api.account).pk for _ in range(20)]
    with django_assert_num_queries(1):
        assert set(sources._stats(rows)) == set(rows)


def test_workloads_are_measured_once_a_second(api: Caller, vmhost: FakeHost, made: str) -> None:
    api.post(f"{BOX}/workloads", {"name": "other", "cmd": ["sleep", "9"]})

    async def work() -> None:
        async with opened(api, f"{BOX}/workloads/stats/stream") as client:
            frames = await client.take(4)
            assert [frame.data["id"] for frame in frames] == ["web", "other"] * 2
            for frame in frames:
                assert set(frame.data) == {"id", "pid", "uptime", "cpu_percent", "memory_bytes"}
                assert (frame.kind, frame.data["pid"], frame.data["memory_bytes"]) == ("message", 100, 1 << 20)
            assert 20 < frames[2].data["cpu_percent"] < 30
            await call(api.post, f"{BOX}/workloads/web/stop")
            while (found := (await client.next()).data)["pid"]:
                pass
            assert found == {"id": "web", "pid": None, "uptime": 0, "cpu_percent": 0.0, "memory_bytes": 0}

    run(work)


def test_a_stream_of_workloads_stays_open_while_the_workspace_stops(api: Caller, vmhost: FakeHost, made: str) -> None:
    bring(api, vmhost, made, Status.STOPPED)

    async def work() -> None:
        async with opened(api, f"{BOX}/workloads/stats/stream") as client:
            await call(api.post, f"{BOX}/start")
            assert (await client.next(10)).data["id"] == "web"

    run(work)


def test_the_log_of_a_workload_comes_in_the_form_of_its_route(api: Caller, made: str, log: Path) -> None:
    path = log.with_name("web.log")
    path.write_bytes(b"2026-01-31T12:00:00.500000000Z stderr F one\n2026-01-31T12:00:01.500000000Z stdout F two\n")

    async def work() -> None:
        async with (
            opened(api, f"{BOX}/workloads/web/logs/stream") as client,
            opened(api, f"{BOX}/logs/stream/web") as plain,
        ):
            frames = await client.take(2)
            assert frames[0].data == {"data": "one", "stream": "stderr", "timestamp": "2026-01-31T12:00:00.500Z"}
            assert (frames[1].data["data"], frames[1].data["stream"]) == ("two", "stdout")
            append(path, b"2026-01-31T12:00:02.500000000Z stdout F three\n")
            found, other = await client.next(), (await plain.take(3))[-1]
            assert set(found.data) == {"data", "stream", "timestamp"}
            assert (found.data["data"], found.data["timestamp"]) == (other.data["line"], other.data["timestamp"])
            assert found.id == other.id
            await call(api.delete, f"{BOX}/logs")
            assert (await client.next()).data == {"cleared": True}
            append(path, b"2026-01-31T12:00:03.500000000Z stdout F four\n")
            assert (await client.next()).data["data"] == "four"
        async with opened(api, f"{BOX}/workloads/web/logs/stream", Last_Event_ID=str(frames[0].id)) as again:
            assert (await again.next()).kind == "gap"

    run(work)


def test_the_log_of_an_unknown_workload_is_404(api: Caller, made: str) -> None:
    for name in ("none", "cmd", "boot"):
        answer = api.get(f"{BOX}/workloads/{name}/logs/stream")
        assert (answer.status_code, answer.json()["code"]) == (404, "workload_not_found")
