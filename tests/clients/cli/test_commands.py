"""Commands beside a server that says what a test wants: odd answers, lost connections, hostile texts."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from microvm.cli.arguments import environment, megabytes
from microvm.cli.copying import Place, parse_place
from microvm.cli.failures import CommandError, ExitCode, failure_of
from microvm.cli.printable import printable, size_text
from microvm.cli.ssh import SshOptions, own_key, ssh_words
from microvm.cli.tty import EscapeReader
from microvm.cli.unpacking import is_safe_name
from microvm.errors import error_of
from microvm.types.ssh import Ssh
from tests.clients.cli.runner import PROGRAM, TerminalProcess, Ws
from tests.clients.scripted_server import Script, ScriptedRequest, Step

HOSTILE = "a\x1b]0;title\x07\x1b[31m\rb\u202ec\x9b2J\nnext"


def answer(status: int, body: Any) -> Step:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def step(request: ScriptedRequest) -> None:
        request.rfile.read(int(request.headers.get("Content-Length") or 0))
        request.answer(status, {"Content-Length": str(len(content)), "Content-Type": "application/json"}, content)

    return step


def lost(request: ScriptedRequest) -> None:
    """Its request was read, and no answer comes."""
    request.close_connection = True
    request.connection.shutdown(socket.SHUT_RDWR)


def workspace(**fields: Any) -> dict[str, Any]:
    return {
        "id": "ws_1", "slug": "box", "name": "box", "status": "running", "image": "tiny", "created_at": "2026-11-01",
        "resources": {"cpus": 1, "memory_mb": 128, "disk_size_mb": 64}, **fields,
    }  # fmt: skip


@pytest.fixture
def ws(server: Script, tmp_path: Path) -> Ws:
    names = {"MICROVM_URL": server.url, "MICROVM_CLIENT_ID": "c", "MICROVM_CLIENT_SECRET": "the-secret"}
    return Ws(tmp_path / "config", names)


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, {"code": "validation_error", "message": "No.", "details": {"cpus": ["Too many."]}}, ExitCode.USAGE),
        (401, {"code": "unauthorized", "message": "No."}, ExitCode.UNAUTHORIZED),
        (402, {"code": "quota_exceeded", "message": "No."}, ExitCode.EXHAUSTED),
        (403, {"code": "forbidden", "message": "No."}, ExitCode.UNAUTHORIZED),
        (404, {"code": "not_found", "message": "No."}, ExitCode.NOT_FOUND),
        (409, {"code": "invalid_state", "message": "No."}, ExitCode.CONFLICT),
        (500, b"<html>proxy</html>", ExitCode.FAILED),
        (200, b"<html>login page</html>", ExitCode.FAILED),
        (200, b"", ExitCode.FAILED),
        (200, {"success": True, "workspaces": "none"}, ExitCode.FAILED),
    ],
)
def test_every_answer_has_its_exit_code_and_a_sentence(
    server: Script, ws: Ws, status: int, body: Any, code: ExitCode
) -> None:
    server.steps = [answer(status, body), answer(status, body)]
    text = ws.fails(code, "list")
    assert text.startswith("Error: ")
    assert "the-secret" not in text
    error = json.loads(ws.fails(code, "list", "--json"))["error"]
    assert set(error) == {"code", "message", "hint", "request_id", "exit_code", "details"}
    assert error["exit_code"] == code


def test_a_lost_connection_is_tried_again_and_then_said(server: Script, ws: Ws) -> None:
    server.steps = [lost, answer(200, {"success": True, "workspaces": []})]
    assert ws.output("list", "--json") == "[]\n"
    server.steps = [lost] * 4
    assert "cannot be reached" in ws.fails(7, "list")


def test_a_command_whose_answer_is_lost_is_not_run_twice(server: Script, ws: Ws) -> None:
    server.steps = [lost, answer(200, {})]
    ws.fails(125, "exec", "box", "true")
    assert len(server.seen) == 1


def test_control_characters_of_guests_are_shown_as_escapes(server: Script, ws: Ws) -> None:
    server.steps = [answer(200, {"success": True, "workspaces": [workspace(slug=HOSTILE, status="\x1b[2J")]})]
    text = ws.output("list")
    assert not set(text) & {"\x1b", "\x07", "\r", "\u202e", "\x9b"}
    assert text.count("\n") == 2
    assert "\\x1b]0;title" in text


def test_messages_of_errors_are_escaped_as_well(server: Script, ws: Ws) -> None:
    server.steps = [answer(404, {"code": "not_found", "message": HOSTILE})]
    assert not set(ws.fails(4, "show", "box")) & {"\x1b", "\x07", "\r", "\u202e"}


def test_tables_on_a_terminal_are_for_people_and_pipes_get_lines(server: Script, ws: Ws) -> None:
    body = {"success": True, "workspaces": [workspace(slug="[red]x[/red]")]}
    server.steps = [answer(200, body)] * 3
    lines = ws.output("list").splitlines()
    assert [line.split("\t")[0] for line in lines] == ["NAME", "[red]x[/red]"]
    with TerminalProcess([*PROGRAM, "list"], ws.environment, (200, 30)) as terminal:
        shown = terminal.read_until("ws_1")
        assert terminal.wait() == 0
    assert "[red]x[/red]" in shown
    assert "\x1b[" in shown
    ws.variables["NO_COLOR"] = "1"
    with TerminalProcess([*PROGRAM, "list"], ws.environment, (200, 30)) as terminal:
        assert "\x1b[3" not in terminal.read_until("ws_1")
        assert terminal.wait() == 0


def test_a_reader_that_goes_away_is_no_error(server: Script, ws: Ws) -> None:
    rows = [workspace(id=f"ws_{n}", name="x" * 2000) for n in range(100)]
    server.steps = [
        answer(200, {"success": True, "workspaces": rows}),
        answer(200, {"success": True, "workspaces": []}),
    ]
    process = ws.process("list", "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert b"Traceback" not in process.stderr.read()
    assert process.wait(120) == ExitCode.BROKEN_PIPE


def test_a_removal_asks_on_a_terminal_and_takes_no_for_an_answer(server: Script, ws: Ws) -> None:
    with TerminalProcess([*PROGRAM, "rm", "box"], ws.environment) as terminal:
        terminal.read_until("Delete box with all data?")
        terminal.write("n\n")
        assert terminal.wait() == 1
    with TerminalProcess([*PROGRAM, "rm", "box"], ws.environment) as terminal:
        terminal.read_until("Delete box with all data?")
        terminal.interrupt()
        assert terminal.wait() == 130
    assert server.seen == []


def test_nothing_named_and_nothing_created_says_so(ws: Ws) -> None:
    for words in (["show"], ["exec", ".", "true"], ["rm", "-y", "."]):
        found = ws.run(*words)
        assert found.exit_code in (2, 125)
        assert "Name a workspace" in found.stderr


def test_usage_errors_are_two(ws: Ws) -> None:
    assert ws.run("resize", "box").exit_code == 2
    assert "permanent" in ws.fails(2, "create", "--permanent", "--ttl", "1h")


def test_every_command_has_json_a_profile_and_a_help(ws: Ws) -> None:
    listed = ws.output("--help")
    names = [line.split()[0] for line in listed.partition("Commands:")[2].splitlines() if line.startswith("  ")][:-2]
    groups = {
        "port": ["publish", "list", "rm"],
        "workload": ["add", "list", "show", "start", "stop", "rm"],
        "pages": ["deploy", "list", "releases", "rollback"],
        "tasks": ["list", "show", "logs", "kill"],
        "snapshot": ["create", "list", "show", "update", "rm"],
    }
    calls = [[name] for name in names if name.isalpha() and name not in groups]
    calls += [[group, name] for group, inner in groups.items() for name in inner]
    calls += [["pages", "domain", name] for name in ("add", "check", "list", "show", "renew", "rm")]
    assert len(calls) > 30
    for words in calls:
        text = ws.output(*words, "--help")
        assert "--json" in text, words
        assert "--profile" in text, words


@pytest.mark.parametrize(
    ("text", "size"), [("512", 512), ("512M", 512), ("2G", 2048), ("1.5g", 1536), ("1T", 1 << 20), ("64MiB", 64)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert megabytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "12K", "many", "1e3", "1 2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="no size"):
        megabytes(text)


def test_variables_are_read() -> None:
    found = environment(["A=1", "B=x=y", "C", "D="], {"C": "here"})
    assert found == {"A": "1", "B": "x=y", "C": "here", "D": ""}
    for wrong in ("1A=2", "=x", "A B=1", "ABSENT"):
        with pytest.raises(CommandError):
            environment([wrong], {})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("box:/srv/a", Place("box", "/srv/a")), (".:/a:b", Place(".", "/a:b")), ("./a:b", Place(None, "./a:b")),
        ("/x/y:z", Place(None, "/x/y:z")), ("a", Place(None, "a")), ("-", Place(None, "-")),
    ],
)  # fmt: skip
def test_places_are_read(text: str, place: Place) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"])
def test_names_that_leave_a_folder_are_not_safe(name: str) -> None:
    assert not is_safe_name(name)


def test_texts_for_people() -> None:
    assert printable("tab\tand ümlaut") == "tab\tand ümlaut"
    assert printable("\udcff\u2028") == "\\udcff\\u2028"
    assert [size_text(size) for size in (0, 1023, 1536, 5 << 30, None)] == ["0 B", "1023 B", "1.5 KiB", "5.0 GiB", "?"]


def test_what_nothing_expects_is_one_sentence_too() -> None:
    failure = failure_of(RuntimeError("odd \x1b"))
    assert (failure.exit_code, "\x1b" in failure.message) == (1, False)
    assert "5 seconds" in failure_of(error_of(429, b"{}", 5)).hint


@pytest.mark.parametrize(
    ("typed", "passed", "leaves"),
    [
        (b"~.", b"", True), (b"ls\r~.", b"ls\r", True), (b"a~.", b"a~.", False), (b"\r~~x", b"\r~x", False),
        (b"\r~x", b"\r~x", False), (b"x\n~.y", b"x\n", True),
    ],
)  # fmt: skip
def test_the_escape_is_read_after_enter_however_it_comes(typed: bytes, passed: bytes, leaves: bool) -> None:
    assert EscapeReader().passed_on(typed) == (passed, leaves)
    reader, found = EscapeReader(), []
    for byte in typed:
        found.append(reader.passed_on(bytes([byte])))
        if found[-1][1]:
            break
    assert (b"".join(part for part, _ in found), any(left for _, left in found)) == (passed, leaves)


def test_ssh_trusts_only_the_key_that_the_api_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MICROVM_CONFIG_DIR", str(tmp_path))
    key = own_key()
    assert key.stat().st_mode & 0o077 == 0
    assert own_key() == key
    access: Ssh = {
        "ssh_enabled": True, "ssh_id": "ws_1", "host": "-oProxyCommand=x", "port": 22, "user": "root",
        "host_key": "ssh-ed25519 AAAA", "keys": [],
    }  # fmt: skip
    words = ssh_words(access, key, tmp_path / "known", SshOptions(jump="me@host", forwards=("1:x:2",)), ["a b", ";c"])
    assert words[words.index("--") + 1 :] == ["-oProxyCommand=x", "a b ;c"]
    assert "StrictHostKeyChecking=yes" in words
    assert words[words.index("-J") + 1] == "me@host"
    refused = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert refused.returncode == 255
