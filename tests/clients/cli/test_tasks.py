"""Tasks by the command line: started, listed, followed over lost connections, killed."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from microvm.sync import streams
from tests.clients.cli.runner import Ws
from tests.clients.cli.test_commands import answer
from tests.clients.cli.test_programs import seen_body
from tests.clients.scripted_server import Script, Step, command_stream

TASK = {
    "id": "7", "command": ["make", "test"], "status": "running", "guest_pid": 12, "exit_code": None,
    "log_truncated": False, "timed_out": False, "created_at": "2026-01-01T00:00:00Z",
    "started_at": "2026-01-01T00:00:00Z", "exited_at": None, "ttl_seconds": 600,
}  # fmt: skip


def opens(server: Script) -> Step:
    """The answer that switches the runtime on."""
    return answer(200, {"enabled": True, "token": "rtg_x", "expires_at": "", "url": f"{server.url}/r"})


def task_stream(*events: tuple[str, int, Any], cut: bool = False) -> Step:
    """A stream of a task; each event with the offset after it."""

    def step(request: Any) -> None:
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        text = "".join(
            f"event: {kind}\nid: 7-{offset}\ndata: {json.dumps(data)}\n\n" for kind, offset, data in events
        ).encode()
        length = {"Content-Length": "100000"} if cut else {}
        request.answer(200, {"Content-Type": "text/event-stream"} | length, text)

    return step


def written(stream: str, data: bytes, offset: int) -> tuple[str, int, Any]:
    return stream, offset, {"data": b64encode(data).decode()}


BEGUN = ("task_id", 0, {"task_id": "7"})


def test_a_background_program_is_a_task_whose_number_is_printed(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    server.steps = [opens(server), seen_body(bodies, task_stream(BEGUN))]
    found = ws.run("exec", "-b", "-e", "A=1", "-C", "/srv", "box", "make", "test")
    assert (found.exit_code, found.stdout) == (0, "7\n")
    assert "ws tasks logs -f 7 box" in found.stderr
    assert bodies == [
        {"cmd": ["make", "test"], "env": {"A": "1"}, "working_dir": "/srv", "exec_mode": "direct", "ttl_seconds": 86400}
    ]
    assert [(method, path) for method, path, _ in server.seen] == [
        ("POST", "/workspace/box/runtime-api-access/enable"), ("POST", "/r/exec/stream"),
    ]  # fmt: skip
    assert server.seen[1][2]["authorization"] == "Bearer rtg_x"


def test_a_task_has_no_input_and_is_no_workload(ws: Ws) -> None:
    assert "no input" in ws.fails(125, "exec", "-b", "-i", "box", "cat")
    assert "no task" in ws.fails(125, "exec", "-b", "-d", "box", "cat")


def test_tasks_are_listed_shown_and_killed(server: Script, ws: Ws) -> None:
    server.steps = [
        opens(server), answer(200, {"tasks": [TASK]}),
        opens(server), answer(200, {**TASK, "stdout": "", "stderr": "", "truncated": False}),
        opens(server), answer(200, {"message": "The task is gone.", "task": TASK}),
    ]  # fmt: skip
    assert "make test" in ws.output("tasks", "list", "box")
    assert "running" in ws.output("tasks", "show", "7", "box")
    assert ws.output("tasks", "kill", "7", "box") == "Task 7 is gone.\n"
    assert [(method, path) for method, path, _ in server.seen[1::2]] == [
        ("GET", "/r/exec"), ("GET", "/r/exec/7"), ("DELETE", "/r/exec/7"),
    ]  # fmt: skip


def test_the_present_output_is_printed(server: Script, ws: Ws) -> None:
    shown = {**TASK, "stdout": "one\n", "stderr": "two\n", "truncated": True}
    server.steps = [opens(server), answer(200, shown)]
    found = ws.run("tasks", "logs", "7", "box")
    assert (found.exit_code, found.stdout) == (0, "one\n")
    assert found.stderr.startswith("two\n")
    assert "more than is shown" in found.stderr


def test_a_followed_log_goes_on_where_it_was_and_ends_with_the_tasks_code(
    server: Script, ws: Ws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "sleep", lambda _: None)
    end = ("exit", 14, {"exit_code": 3, "pid": 12, "status": "exited"})
    server.steps = [
        opens(server),
        task_stream(BEGUN, written("stdout", b"one\n", 4), cut=True),
        task_stream(("gap", 10, {"bytes": 6}), written("stderr", b"\xff\xfe\n!", 14), end),
    ]
    found = ws.run("tasks", "logs", "-f", "7", "box")
    assert (found.exit_code, found.stdout) == (3, "one\n")
    assert b"\xff\xfe\n!" in found.stderr_bytes
    assert "6 B of its output are gone" in found.stderr
    assert "last-event-id" not in server.seen[1][2]
    assert server.seen[2][2]["last-event-id"] == "7-4"


def test_a_failed_task_says_why(server: Script, ws: Ws) -> None:
    failed = ("exit", 0, {"exit_code": -1, "pid": 12, "status": "failed", "error": "interrupted"})
    server.steps = [opens(server), task_stream(BEGUN, failed)]
    assert "interrupted" in ws.fails(1, "tasks", "logs", "-f", "7", "box")


def test_a_stream_of_another_kind_is_no_task(server: Script, ws: Ws) -> None:
    server.steps = [opens(server), command_stream()]
    assert "ended the connection" in ws.fails(125, "exec", "-b", "box", "true")
