"""Every error of `ws` says what to do about it; a sandbox is waited for where that is asked for, and only then."""

from __future__ import annotations

import ast
import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from microvm.cli.failures import failure_of
from microvm.errors import ConnectionFailed, WaitTimeout, error_of
from tests.clients.cli.runner import SOURCES, Ws
from tests.clients.cli.test_commands import answer
from tests.clients.scripted_server import Script, ScriptedRequest

ERRORS: list[BaseException] = [
    *(error_of(status, b"{}") for status in (200, 400, 401, 402, 403, 404, 405, 409, 413, 429, 500, 503)),
    ConnectionFailed("no route"),
    WaitTimeout("not ready"),
    OSError(errno.ENOENT, "No such file", "x"),
    OSError(errno.EACCES, "Permission denied", "x"),
    OSError(errno.EMFILE, "Too many open files"),
    OSError("of another kind"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    RuntimeError("unexpected"),
]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_of_any_kind_has_a_hint(error: BaseException) -> None:
    assert len(failure_of(error).hint) > 10


def _errors_in(file: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "CommandError":
            yield node


def test_every_error_of_a_command_is_made_with_a_hint() -> None:
    files = sorted((SOURCES / "microvm/cli").glob("*.py"))
    found = [(file.name, call) for file in files for call in _errors_in(file)]
    assert len(found) > 50
    empty = [
        f"{name}:{call.lineno}"
        for name, call in found
        if len(call.args) < 2 or (isinstance(call.args[1], ast.Constant) and not call.args[1].value)
    ]
    assert empty == []


def test_a_search_of_sandboxes_is_refused_and_not_left_out(server: Script, ws: Ws) -> None:
    assert "cannot be searched" in ws.fails(2, "list", "--sandboxes", "--search", "x")
    assert server.seen == []


MADE: dict[str, Any] = {"id": "sbx_1", "name": "agent", "url": "http://x", "workspace_id": "ws_1", "status": "creating"}


def machine(state: str, *, ready: bool = False, error: Any = None) -> dict[str, Any]:
    provisioning = {"state": state, "phase": "boot", "progress": 50, "message": "", "error": error}
    return {"id": "ws_1", "ready": ready, "provisioning": provisioning}


def test_a_sandbox_is_not_waited_for_unless_that_is_asked(server: Script, ws: Ws) -> None:
    bodies: list[Any] = []

    def made(request: ScriptedRequest) -> None:
        bodies.append(json.loads(request.rfile.read(int(request.headers["Content-Length"]))))
        content = json.dumps({"sandbox": {**MADE, "token": "sbt_1"}}).encode()
        request.answer(202, {"Content-Length": str(len(content)), "Content-Type": "application/json"}, content)

    server.steps = [made]
    assert "ws show sbx_1" in ws.output("create", "--sandbox", "--name", "agent")
    assert [body["wait_ready"] for body in bodies] == [False]


def test_a_sandbox_is_waited_for_with_its_machine(server: Script, ws: Ws) -> None:
    running = {**MADE, "status": "active"}
    server.steps = [
        answer(202, {"sandbox": {**MADE, "token": "sbt_1"}}),
        answer(200, {"workspace": machine("creating")}),
        answer(200, {"workspace": machine("ready", ready=True)}),
        answer(200, {"sandbox": running}),
    ]
    made = json.loads(ws.output("create", "--wait", "--sandbox", "--name", "agent", "--json"))
    assert (made["status"], made["token"]) == ("active", "sbt_1")


def test_a_sandbox_that_cannot_be_made_says_why_and_how_it_is_removed(server: Script, ws: Ws) -> None:
    error = {"code": "image_pull_failed", "message": "The registry does not know this tag."}
    server.steps = [
        answer(202, {"sandbox": {**MADE, "token": "sbt_1"}}),
        answer(200, {"workspace": machine("failed", error=error)}),
    ]
    text = ws.fails(1, "create", "--wait", "--sandbox")
    assert "The registry does not know this tag." in text
    assert "ws rm sbx_1" in text
