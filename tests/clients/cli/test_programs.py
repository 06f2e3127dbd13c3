"""Programs in a workspace: their bytes, their options, their codes, and what lasts."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from tests.clients.cli.runner import Ws
from tests.clients.cli.test_commands import answer
from tests.clients.scripted_server import Script, ScriptedRequest, Step, command_end, command_output, command_stream

BYTES = bytes(range(256)) * 40


def seen_body(bodies: list[Any], step: Step) -> Step:
    """Keeps the body of a request, and goes on with another step."""

    def kept(request: ScriptedRequest) -> None:
        bodies.append(json.loads(request.rfile.read(int(request.headers["Content-Length"]))))
        request.headers.replace_header("Content-Length", "0")
        step(request)

    return kept


def test_output_that_is_no_text_is_passed_on_byte_for_byte(server: Script, ws: Ws) -> None:
    server.steps = [command_stream(command_output("stdout", BYTES), command_output("stderr", b"\xff"), command_end())]
    found = ws.run("exec", "box", "cat", "/bytes")
    assert (found.stdout_bytes, found.stderr_bytes) == (BYTES, b"\xff")


def test_json_says_where_text_is_not_exact_and_has_the_bytes(server: Script, ws: Ws) -> None:
    ended = {"exit_code": 0, "duration_ms": 1, "truncated": False, "timed_out": False, "lossy": False}
    server.steps = [
        answer(200, {"stdout": "eA==", "stderr": "", **ended}),
        answer(200, {"stdout": "eP8=", "stderr": "", **ended}),
    ]
    exact = json.loads(ws.output("exec", "--json", "box", "x"))
    assert (exact["stdout"], exact["lossy"], "stdout_base64" in exact) == ("x", False, False)
    lossy = json.loads(ws.output("exec", "--json", "box", "x"))
    assert (lossy["stdout"], lossy["lossy"], lossy["stdout_base64"]) == ("x\ufffd", True, "eP8=")


def test_input_is_sent_in_parts_with_its_bytes_and_its_end(server: Script, ws: Ws) -> None:
    content, got = BYTES * 60, bytearray()
    ends: list[bool] = []
    server.by_path["/exec"] = [lambda request: _running_until(request, ends)]
    server.by_path["/input"] = [lambda request: _take(request, got, ends)] * 9
    found = ws.run("exec", "-i", "box", "sha256sum", stdin=content)
    assert (found.exit_code, found.stderr) == (0, "")
    assert bytes(got) == content
    assert ends == [True]


def _running_until(request: ScriptedRequest, ends: list[bool]) -> None:
    command_stream()(request)
    until = time.monotonic() + 60
    while not ends and time.monotonic() < until:
        time.sleep(0.01)
    request.wfile.write(b'event: exit\ndata: {"exit_code": 0, "duration_ms": 1, "timed_out": false}\n\n')


def _take(request: ScriptedRequest, got: bytearray, ends: list[bool]) -> None:
    assert re.fullmatch(r"/workspace/box/exec/[0-9a-f]{32}/input\?offset=\d+(&eof=true)?", request.path)
    got += request.rfile.read(int(request.headers["Content-Length"]))
    content = json.dumps({"bytes_written": len(got)}).encode()
    request.answer(200, {"Content-Length": str(len(content)), "Content-Type": "application/json"}, content)
    if "eof=true" in request.path:
        ends.append(True)


@pytest.mark.parametrize(
    ("words", "cmd"),
    [
        (["box", "-C", "/srv", "--", "ls", "-C"], ["ls", "-C"]), (["-C", "/srv", "box", "ls", "-C"], ["ls", "-C"]),
        (["-C", "/srv", "box", "--", "ls"], ["ls"]), (["-C", "/srv", "box", "grep", "--", "-x"], ["grep", "--", "-x"]),
        (["box", "--cwd=/srv", "--", "sh", "--", "-x"], ["sh", "--", "-x"]),
    ],
)  # fmt: skip
def test_options_before_the_program_are_those_of_ws(server: Script, ws: Ws, words: list[str], cmd: list[str]) -> None:
    bodies: list[Any] = []
    server.steps = [seen_body(bodies, command_stream(command_end()))]
    ws.output("exec", *words)
    assert (bodies[0]["cmd"], bodies[0]["working_dir"]) == (cmd, "/srv")


@pytest.mark.parametrize(("code", "shown"), [(127, 127), (126, 126), (None, 125), ("x", 125)])
def test_a_program_that_cannot_be_started_ends_with_the_code_of_a_shell(
    server: Script, ws: Ws, code: Any, shown: int
) -> None:
    details = {"exit_code": code} if code else None
    body = {"code": "command_invalid", "message": "The command cannot be started: no such file", "details": details}
    server.steps = [answer(400, body), answer(400, body)]
    text = ws.fails(shown, "exec", "box", "nothing")
    assert "exit_code" not in text or code == "x"
    assert json.loads(ws.fails(shown, "exec", "--json", "box", "nothing"))["error"]["exit_code"] == 2


def test_a_detached_program_is_a_workload_that_is_not_started_again(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    changed = {"workload": {"status": "starting"}, "applied": True, "problem": None}
    server.steps = [seen_body(bodies, answer(201, changed))]
    name = ws.output("exec", "-d", "-e", "A=1", "-C", "/srv", "box", "/usr/bin/my server", "-p", "80").strip()
    assert name.startswith("my-server-")
    assert bodies == [
        {
            "name": name, "cmd": ["/usr/bin/my server", "-p", "80"], "restart_policy": "never",
            "env": [{"key": "A", "value": "1"}], "working_dir": "/srv",
        }
    ]  # fmt: skip
    assert "no input" in ws.fails(125, "exec", "-d", "-i", "box", "cat")


def test_workloads_are_added_listed_stopped_and_removed(server: Script, ws: Ws) -> None:
    row = {
        "name": "web", "status": "running", "pid": 7, "exit_code": None, "restarts": 0, "restart_policy": "on-failure",
        "cmd": ["python3", "-m", "http.server"],
    }  # fmt: skip
    bodies: list[Any] = []
    changed = {"workload": row, "applied": False, "problem": "The guest does not answer."}
    server.steps = [
        seen_body(bodies, answer(201, changed)), answer(200, {"workloads": [row]}),
        answer(200, {"workload": {**row, "status": "stopped"}}), answer(200, {**changed, "problem": None}),
    ]  # fmt: skip
    added = ws.run(
        "workload", "add", "web", "box", "-u", "nobody", "--restart", "on-failure", "--", "python3", "-m", "http.server"
    )
    assert (added.exit_code, added.stdout) == (0, "web is running.\n")
    assert "not carried out yet: The guest does not answer." in added.stderr
    assert bodies[0] == {
        "name": "web", "cmd": row["cmd"], "restart_policy": "on-failure", "user": "nobody",
    }  # fmt: skip
    assert "python3 -m http.server" in ws.output("workload", "list", "box")
    assert ws.output("workload", "stop", "web", "box") == "web is stopped.\n"
    assert ws.output("workload", "rm", "web", "box") == "web is removed.\n"
    assert [(method, path) for method, path, _ in server.seen] == [
        ("POST", "/workspace/box/workloads"), ("GET", "/workspace/box/workloads"),
        ("POST", "/workspace/box/workloads/web/stop"), ("DELETE", "/workspace/box/workloads/web"),
    ]  # fmt: skip


def test_a_main_program_may_be_given_at_the_creation(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []
    server.steps = [seen_body(bodies, answer(201, {"workspace": {"id": "ws_1", "slug": "box"}}))]
    ws.output("create", "--cmd", "python3 -m http.server 80")
    assert bodies[0]["config"] == {"cmd": "python3 -m http.server 80"}
