"""Commands of the Python client with output as it comes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from threading import Event

import pytest

from microvm import ApiError, AsyncMicrovm, CommandExit, CommandOutput, ConnectionFailed, Microvm, Retries
from tests.clients.scripted_server import (
    ScriptedRequest,
    Step,
    command_end,
    command_output,
    command_stream,
    scripted_server,
)

FAST = Retries(attempts=3, first_wait=0.001)
OUT, ERR = command_output("stdout", b"one\n"), command_output("stderr", b"two\n")
ONE, TWO = CommandOutput("stdout", b"one\n", "one\n"), CommandOutput("stderr", b"two\n", "two\n")


def client_at(url: str) -> Microvm:
    return Microvm(url, client_id="id", client_secret="secret", retries=FAST)


def test_events_are_typed_and_the_exit_code_is_the_last() -> None:
    with (
        scripted_server(command_stream(OUT, ERR, ("later", {}), command_end(3))) as script,
        client_at(script.url) as client,
    ):
        events = list(client.workspaces.exec_stream("the/box", cmd=["make"], timeout_seconds=5))
    assert events == [ONE, TWO, CommandExit(3, 5, False)]
    assert script.seen[0][:2] == ("POST", "/workspace/the%2Fbox/exec")
    assert script.seen[0][2]["accept"] == "text/event-stream"


def test_bytes_are_as_they_are_and_text_has_whole_characters() -> None:
    parts = [b"a\xc3", b"\xbcb", b"\xff", b"\xe2\x82"]
    events = [command_output("stdout", part) for part in parts]
    with scripted_server(command_stream(*events, command_end())) as script, client_at(script.url) as client:
        found = list(client.workspaces.exec_stream("box", cmd="make"))
    written = [event for event in found if isinstance(event, CommandOutput)]
    assert b"".join(event.data for event in written) == b"".join(parts)
    assert [event.text for event in written] == ["a", "\u00fcb", "\ufffd", "", "\ufffd"]
    assert found[-1] == CommandExit(0, 5, False)


def test_the_text_of_an_older_service_is_not_taken_for_bytes() -> None:
    with (
        scripted_server(command_stream(("stdout", {"data": "abcd"}))) as script,
        client_at(script.url) as client,
        pytest.raises(ConnectionFailed, match="older than this client"),
    ):
        next(client.workspaces.exec_stream("box", cmd="make"))


def test_coroutines_have_the_same() -> None:
    async def events_of(url: str) -> list[CommandOutput | CommandExit]:
        async with AsyncMicrovm(url, client_id="i", client_secret="s", retries=FAST) as client:
            return [event async for event in client.workspaces.exec_stream("box", cmd="make")]

    with scripted_server(command_stream(OUT, command_end())) as script:
        assert asyncio.run(events_of(script.url)) == [ONE, CommandExit(0, 5, False)]


@pytest.mark.parametrize("cut", [True, False])
def test_a_lost_connection_is_an_error_and_nothing_is_sent_again(cut: bool) -> None:
    with (
        scripted_server(command_stream(OUT, cut=cut), command_stream(command_end())) as script,
        client_at(script.url) as client,
    ):
        events = client.workspaces.exec_stream("box", cmd="make")
        assert next(events) == ONE
        with pytest.raises(ConnectionFailed, match="while the command ran"):
            next(events)
        assert len(script.seen) == 1


def test_an_error_while_it_runs_is_that_of_the_service() -> None:
    error = {"success": False, "code": "VM_UNAVAILABLE", "message": "It is gone.", "status": 503}
    with scripted_server(command_stream(OUT, ("error", error))) as script, client_at(script.url) as client:
        events = client.workspaces.exec_stream("box", cmd="make")
        next(events)
        with pytest.raises(ApiError, match="It is gone") as raised:
            next(events)
    assert (raised.value.code, raised.value.status) == ("VM_UNAVAILABLE", 503)


def test_a_refusal_before_it_runs_is_raised_and_too_many_are_tried_again() -> None:
    def busy(request: ScriptedRequest) -> None:
        request.answer(429, {"Content-Length": "0", "Retry-After": "0"})

    def invalid(request: ScriptedRequest) -> None:
        body = json.dumps({"code": "command_invalid", "message": "There is no such program."}).encode()
        request.answer(400, {"Content-Length": str(len(body))}, body)

    with scripted_server(busy, invalid) as script, client_at(script.url) as client:
        with pytest.raises(ApiError, match="no such program"):
            next(client.workspaces.exec_stream("box", cmd="make"))
        assert len(script.seen) == 2


def test_a_service_without_such_streams_is_said() -> None:
    def older(request: ScriptedRequest) -> None:
        request.answer(200, {"Content-Type": "application/json", "Content-Length": "2"}, b"{}")

    with (
        scripted_server(older) as script,
        client_at(script.url) as client,
        pytest.raises(ConnectionFailed, match="older than this client"),
    ):
        next(client.workspaces.exec_stream("box", cmd="make"))


def test_the_caller_may_stop_early() -> None:
    with scripted_server(command_stream(OUT, OUT, command_end())) as script, client_at(script.url) as client:
        with closing(client.workspaces.exec_stream("box", cmd="make")) as events:
            assert next(events) == ONE
        assert len(script.seen) == 1


def input_answer(status: int, code: str = "") -> Step:
    def step(request: ScriptedRequest) -> None:
        request.rfile.read(int(request.headers["Content-Length"]))
        body = json.dumps({"success": not code, "code": code, "message": "."}).encode()
        request.answer(status, {"Content-Length": str(len(body))}, body)

    return step


def test_a_part_is_sent_until_the_command_takes_it() -> None:
    answers = [input_answer(*each) for each in ((404, "not_found"), (409, "input_full"), (200,), (200,))]

    def command(request: ScriptedRequest) -> None:
        all_sent.wait(30)
        command_stream(command_end())(request)

    def last(request: ScriptedRequest) -> None:
        answers[-1](request)
        all_sent.set()

    all_sent, by_path = Event(), {"/exec": [command], "/input": [*answers[:-1], last]}
    with scripted_server(by_path=by_path) as script, client_at(script.url) as client:
        found = list(client.workspaces.exec_stream("box", cmd="cat", stdin_parts=[b"abc"]))
    assert found == [CommandExit(0, 5, False)]
    sent = [path.partition("?")[2] for _, path, _ in script.seen if "/input" in path]
    assert sent == ["offset=0", "offset=0", "offset=0", "offset=3&eof=true"]


def test_what_the_parts_raise_ends_the_command() -> None:
    def parts() -> Iterator[bytes]:
        yield b"a"
        raise OSError("The disk is gone.")

    def command(request: ScriptedRequest) -> None:
        request.answer(200, {"Content-Type": "text/event-stream"})
        with suppress(OSError):
            while True:
                request.wfile.write(b": heartbeat\n\n")
                time.sleep(0.05)

    by_path = {"/exec": [command], "/input": [input_answer(200)]}
    with (
        scripted_server(by_path=by_path) as script,
        client_at(script.url) as client,
        pytest.raises(OSError, match="disk is gone"),
    ):
        list(client.workspaces.exec_stream("box", cmd="cat", stdin_parts=parts()))
