"""Streams of the Python client: events from bytes, and connections that are lost."""

from __future__ import annotations

import asyncio
import json
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microvm import ApiError, AsyncMicrovm, Microvm, Retries
from microvm.events import Event, EventParser, StreamPlace
from tests.clients.scripted_server import ScriptedRequest, Step, not_found, scripted_server

FAST = Retries(attempts=3, first_wait=0.001)


def frame(number: int, data: object, kind: str = "message") -> bytes:
    return f"event: {kind}\nid: e-{number}\ndata: {json.dumps(data)}\n\n".encode()


def line(number: int) -> bytes:
    return frame(number, {"line": f"line {number}"})


def stream_of(*frames: bytes, cut: bytes = b"") -> Step:
    """Sends the frames and ends; with `cut` in the middle of one."""

    def step(request: ScriptedRequest) -> None:
        request.answer(200, {"Content-Type": "text/event-stream"}, b"retry: 1\n\n" + b"".join(frames) + cut)

    return step


def broken_stream(*frames: bytes) -> Step:
    """Announces more than it sends, so that the client sees a broken connection."""

    def step(request: ScriptedRequest) -> None:
        headers = {"Content-Type": "text/event-stream", "Content-Length": "100000"}
        request.answer(200, headers, b"retry: 1\n\n" + b"".join(frames))

    return step


def client_at(url: str) -> Microvm:
    return Microvm(url, client_id="id", client_secret="secret", retries=FAST)


def test_a_stream_goes_on_after_the_last_event_of_a_lost_connection() -> None:
    lost = broken_stream(line(1), line(2))
    with scripted_server(lost, stream_of(line(3))) as script, client_at(script.url) as client:
        entries = [entry["line"] for entry in client.logs.follow("one", tail_lines=5)]
    assert entries == ["line 1", "line 2", "line 3"]
    assert [headers.get("last-event-id") for _, _, headers in script.seen] == [None, "e-2", "e-3"]
    assert script.seen[0][1] == "/workspace/one/logs/stream/boot?tail_lines=5"


def test_half_an_event_is_left_out_and_sent_again() -> None:
    with (
        scripted_server(stream_of(line(1), cut=line(2)[:-4]), stream_of(line(2))) as script,
        client_at(script.url) as client,
    ):
        assert [entry["line"] for entry in client.logs.follow("one")] == ["line 1", "line 2"]


def test_a_stream_ends_when_what_it_shows_is_deleted_and_no_sooner() -> None:
    with scripted_server(stream_of(), stream_of(line(1)), not_found) as script, client_at(script.url) as client:
        assert len(list(client.logs.follow("one"))) == 1
        assert len(script.seen) == 3


def test_a_stream_of_what_never_was_is_an_error() -> None:
    with scripted_server() as script, client_at(script.url) as client, pytest.raises(ApiError, match="It is gone"):
        next(iter(client.logs.follow("one")))


def test_a_service_that_restarts_is_waited_for() -> None:
    def restarting(request: ScriptedRequest) -> None:
        request.answer(503, {"Content-Length": "0"})

    with (
        scripted_server(broken_stream(line(1)), restarting, stream_of(line(2))) as script,
        client_at(script.url) as client,
    ):
        assert len(list(client.logs.follow("one"))) == 2


def test_missing_lines_and_an_emptied_log_are_reported() -> None:
    seen: list[str] = []
    frames = [line(1), frame(2, {"gap": True}, "gap"), frame(3, {"cleared": True}), line(4)]
    with scripted_server(stream_of(*frames)) as script, client_at(script.url) as client:
        follow = client.logs.follow(
            "one", "cmd", on_gap=lambda: seen.append("gap"), on_clear=lambda: seen.append("cleared")
        )
        assert [entry["line"] for entry in follow] == ["line 1", "line 4"]
    assert seen == ["gap", "cleared"]


def test_statistics_are_followed_by_coroutines_alike() -> None:
    async def two(url: str) -> list[float]:
        found = []
        async with AsyncMicrovm(url, client_id="i", client_secret="s", retries=FAST) as client:
            async for stats in client.metrics.follow("one"):
                found.append(stats["cpuUsage"])
        return found

    with scripted_server(broken_stream(frame(1, {"cpuUsage": 1.5})), stream_of(frame(2, {"cpuUsage": 2.5}))) as script:
        assert asyncio.run(two(script.url)) == [1.5, 2.5]
        assert script.seen[1][2]["last-event-id"] == "e-1"


def test_workloads_are_followed_over_a_lost_connection() -> None:
    def output(number: int) -> bytes:
        return frame(number, {"data": f"line {number}", "stream": "stdout", "timestamp": None})

    with scripted_server(broken_stream(output(1)), stream_of(output(2), frame(3, {"cleared": True}))) as script:
        with client_at(script.url) as client:
            found = [line["data"] for line in client.workloads.follow_logs("one", "web", tail_lines=7)]
        assert found == ["line 1", "line 2"]
        assert script.seen[0][1] == "/workspace/one/workloads/web/logs/stream?tail_lines=7"
        assert script.seen[1][2]["last-event-id"] == "e-1"
    stats = {"id": "web", "pid": 7, "uptime": 1, "cpu_percent": 2.5, "memory_bytes": 4096}
    with scripted_server(stream_of(frame(1, stats))) as script, client_at(script.url) as client:
        assert list(client.workloads.follow_stats("one")) == [stats]


def test_the_caller_may_end_a_stream() -> None:
    with scripted_server(stream_of(line(1), line(2))) as script, client_at(script.url) as client:
        follow = client.logs.follow("one")
        assert [entry["line"] for entry in islice(follow, 1)] == ["line 1"]
        follow.close()
    assert len(script.seen) == 1


TEXT = st.text(max_size=20)


@given(
    texts=st.lists(TEXT, max_size=5),
    cuts=st.lists(st.integers(0, 400), max_size=6),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_events_do_not_depend_on_how_their_bytes_come(texts: list[str], cuts: list[int], end: str) -> None:
    frames = [
        f": hello{end}{end}id: {number}{end}data: {json.dumps(text)}{end}{end}" for number, text in enumerate(texts)
    ]
    whole = "".join(frames).encode()
    parser, found, places = EventParser(StreamPlace()), [], sorted({0, *cuts, len(whole)})
    for begin, stop in pairwise(places):
        found += parser.events_in(whole[begin:stop])
    assert found == [Event(str(number), "message", text) for number, text in enumerate(texts)]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    parser = EventParser(StreamPlace())
    assert parser.events_in(b"x" * (16 << 20)) == []
    with pytest.raises(ValueError, match="too long"):
        parser.events_in(b"x")
