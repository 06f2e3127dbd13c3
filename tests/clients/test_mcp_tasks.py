"""The tools for tasks beside a service that says what a test wants."""

from __future__ import annotations

import time
from typing import Any

import pytest
from mcp import Client

from microvm.aio import streams
from tests.clients.cli.test_commands import HOSTILE, answer
from tests.clients.cli.test_programs import seen_body
from tests.clients.cli.test_tasks import BEGUN, TASK, opens, task_stream, written
from tests.clients.scripted_server import Script, ScriptedRequest, Step
from tests.clients.test_mcp_hostile import error_text, in_memory
from tests.clients.test_mcp_snapshots import answered

END = ("exit", 8, {"exit_code": 3, "pid": 12, "status": "exited"})


def quiet(*events: tuple[str, int, Any], seconds: float) -> Step:
    """A stream that says nothing more for a while."""

    def step(request: ScriptedRequest) -> None:
        task_stream(*events)(request)
        request.wfile.flush()
        time.sleep(seconds)

    return step


def test_a_task_is_started_and_its_number_given(server: Script) -> None:
    bodies: list[Any] = []
    server.steps = [opens(server), seen_body(bodies, task_stream(BEGUN)), answer(200, {**TASK, "stdout": ""})]

    async def talk(client: Client) -> None:
        found = await answered(client, "start_task", workspace="box", command="make test", env={"A": "1"})
        assert (found["task"], found["status"], found["command"]) == ("7", "running", "make test")

    in_memory(server, talk)
    assert bodies == [{"cmd": "make test", "exec_mode": "shell", "ttl_seconds": 86400, "env": {"A": "1"}}]


def test_a_task_is_read_on_from_an_offset_to_its_end(server: Script) -> None:
    server.steps = [
        opens(server), task_stream(BEGUN, written("stdout", b"one\n", 4), written("stderr", b"\xff\xfe\n!", 8), END),
        opens(server), task_stream(BEGUN, ("gap", 8, {"bytes": 4}), END),
    ]  # fmt: skip

    async def talk(client: Client) -> None:
        found = await answered(client, "read_task", workspace="box", task="7")
        assert (found["stdout"], found["stderr"], found["stderr_encoding"]) == ("one\n", "//4KIQ==", "base64")
        assert (found["ended"], found["exit_code"], found["next_offset"]) == (True, 3, 8)
        found = await answered(client, "read_task", workspace="box", task="7", offset=4)
        assert (found["stdout"], found["missing_bytes"]) == ("", 4)

    in_memory(server, talk)
    assert server.seen[3][2]["last-event-id"] == "7-4"


def test_a_task_that_says_nothing_is_not_waited_for_longer_than_asked(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "SILENCE", 20.0)
    server.steps = [opens(server), quiet(BEGUN, written("stdout", b"one\n", 4), seconds=5)]

    async def talk(client: Client) -> None:
        begun = time.monotonic()
        found = await answered(client, "read_task", workspace="box", task="7", wait_seconds=0)
        assert time.monotonic() - begun < 4
        assert (found["stdout"], found["ended"], found["exit_code"]) == ("one\n", False, None)

    in_memory(server, talk)


def test_what_one_call_returns_is_bounded(server: Script) -> None:
    many = [written("stdout", b"x" * 20_000, 20_000 * number) for number in range(1, 10)]
    rows = [{**TASK, "id": str(number), "command": [HOSTILE * 100]} for number in range(300)]
    server.steps = [opens(server), task_stream(BEGUN, *many, END), opens(server), answer(200, {"tasks": rows})]

    async def talk(client: Client) -> None:
        found = await answered(client, "read_task", workspace="box", task="7")
        assert (len(found["stdout"]) <= 41_000, found["next_offset"], found["ended"]) == (True, 40_000, False)
        found = await answered(client, "list_tasks", workspace="box")
        assert (len(found["tasks"]), found["truncated"]) == (200, True)
        assert len(found["tasks"][0]["command"]) < 600

    in_memory(server, talk)


def test_input_is_given_and_a_task_is_stopped(server: Script) -> None:
    server.steps = [
        opens(server), answer(200, {"bytes_written": 4}),
        opens(server), answer(200, {"message": "x", "task": TASK}),
    ]  # fmt: skip

    async def talk(client: Client) -> None:
        await answered(client, "send_task_input", workspace="box", task="7", text="one\n", ends=True)
        await answered(client, "stop_task", workspace="box", task="7")
        assert "pattern" in await error_text(client, "stop_task", workspace="box", task="../x")

    in_memory(server, talk)
    assert [(method, path) for method, path, _ in server.seen[1::2]] == [
        ("POST", "/r/exec/7/input?eof=true"), ("DELETE", "/r/exec/7"),
    ]  # fmt: skip
