"""What `ws` shows, and what it never does: secrets, controls of a terminal, half of an outcome."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from microvm.cli.failures import CommandError
from microvm.cli.run_commands import MOST_STDIN
from microvm.cli.terminal import Keyboard, SandboxTerminal
from microvm.sockets import TerminalPlace, socket_address
from tests.clients.cli.runner import PROGRAM, TerminalProcess, Ws
from tests.clients.cli.test_commands import HOSTILE, answer, workspace
from tests.clients.scripted_server import Script, ScriptedRequest, Step, command_end, command_output, command_stream

CONTROLS = {"\x1b", "\x07", "\r", "\u202e", "\x9b"}
BAD_SECRETS = ["quinine x", "quinine\x00", "quinine\u00e4", "quin ine\tquinine"]


def logs(line: str) -> Step:
    entry = {"line": line, "timestamp": HOSTILE, "source": "boot"}
    return answer(200, {"success": True, "source": "boot", "logs": [entry], "lines": [entry], "entries": [entry]})


# Secrets


@pytest.mark.parametrize("secret", BAD_SECRETS)
@pytest.mark.parametrize("words", [["--secret-stdin", "--client-id", "c"], ["--token-stdin"]])
def test_a_secret_that_is_typed_wrong_is_neither_shown_nor_kept(
    server: Script, ws: Ws, words: list[str], secret: str, tmp_path: Path
) -> None:
    text = ws.fails(2, "login", "--url", server.url, *words, stdin=f"{secret}\n")
    assert "another character that no credential has" in text
    assert "quin" not in text
    assert server.seen == []
    assert not (tmp_path / "config" / "profiles.json").exists()


def test_a_secret_in_a_file_is_not_shown_either(server: Script, ws: Ws, tmp_path: Path) -> None:
    file = tmp_path / "c.env"
    file.write_text(f"BASE_URL={server.url}\nCLIENT_ID=c\nCLIENT_SECRET=quinine x\n")
    assert "quinine" not in ws.fails(2, "login", "--file", file)
    assert server.seen == []


def test_a_traceback_that_was_asked_for_has_no_secret(server: Script, ws: Ws) -> None:
    ws.variables["MICROVM_DEBUG"] = "1"
    server.steps = [answer(401, {"code": "unauthorized", "message": "No."})]
    found = ws.run("list")
    assert found.exit_code == 3
    assert "Traceback" in found.output
    assert "the-token" not in found.output


@pytest.mark.parametrize("url", ["/s/sbx_1", "http://"])
def test_an_address_that_is_none_does_not_show_the_token_in_it(url: str) -> None:
    terminal = SandboxTerminal(socket_address(url, "sbt_quinine"), Keyboard(0, 1), TerminalPlace({}))
    with pytest.raises(CommandError) as error:
        asyncio.run(terminal._show_output())
    assert "quinine" not in str(error.value)


def test_a_login_without_encryption_is_said(ws: Ws) -> None:
    found = ws.run("login", "--url", "http://platform.invalid", "--token-stdin", stdin="quinine\n")
    assert found.exit_code == 7
    assert "is not encrypted" in found.stderr
    assert "quinine" not in found.output


def test_a_short_token_of_the_mcp_server_is_refused_and_not_shown(ws: Ws) -> None:
    ws.variables["MICROVM_MCP_TOKEN"] = "quinine"
    text = ws.fails(2, "mcp", "--http", "--port", "0")
    assert "at least 16" in text
    assert "quinine" not in text


# Texts of guests


def test_logs_are_escaped_on_a_terminal_unless_they_are_asked_for_as_they_are(server: Script, ws: Ws) -> None:
    server.steps = [logs(HOSTILE)] * 3
    assert "\x1b]0;title" in ws.output("logs", "box")  # into a pipe
    with TerminalProcess([*PROGRAM, "logs", "--times", "box"], ws.environment, (200, 30)) as terminal:
        shown = terminal.read_until("next")
        assert terminal.wait() == 0
    assert "\\x1b]0;title" in shown
    assert not set(shown) & (CONTROLS - {"\r"})
    with TerminalProcess([*PROGRAM, "logs", "--raw", "box"], ws.environment, (200, 30)) as terminal:
        assert "\x1b]0;title" in terminal.read_until("next")


@pytest.mark.parametrize("size", [(20, 5), (1, 1), (0, 0)])
def test_a_narrow_terminal_loses_no_text_and_ends_nothing(server: Script, ws: Ws, size: tuple[int, int]) -> None:
    server.steps = [answer(200, {"success": True, "workspaces": [workspace(slug="a" * 60)]})]
    with TerminalProcess([*PROGRAM, "list"], ws.environment, size) as terminal:
        assert terminal.wait() == 0
        assert b"Traceback" not in terminal.seen
        if size[0] != 1:
            assert terminal.seen.count(b"a") >= 60


def test_what_is_no_address_of_a_page_is_opened_nowhere(server: Script, ws: Ws) -> None:
    port = {"port": 80, "url": "javascript:alert(1)", "label": ""}
    server.steps = [answer(200, {"success": True, "ports": [port]})]
    assert "no address for a browser" in ws.fails(1, "open", "box")


# Outcomes


def test_a_removal_that_fails_in_the_middle_says_what_is_gone(server: Script, ws: Ws) -> None:
    gone = answer(404, {"code": "not_found", "message": "There is no such workspace."})
    server.steps = [answer(200, {"workspace": workspace()}), answer(200, {"success": True}), gone]
    text = ws.fails(4, "rm", "-y", "one", "two", "three")
    assert "one: deleted. two, three: not deleted." in text


def test_input_that_no_request_takes_is_refused_before_it_is_sent(server: Script, ws: Ws) -> None:
    text = ws.fails(125, "exec", "-i", "--json", "box", "cat", stdin=b"x" * (MOST_STDIN + 1))
    assert "Without --json" in text
    assert server.seen == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], b"The program is ended in the workspace"),
        (["--json"], b"goes on in the workspace, for 90 seconds at most"),
    ],
)
def test_ctrl_c_says_what_becomes_of_the_program(server: Script, ws: Ws, words: list[str], said: bytes) -> None:
    begun, ended = threading.Event(), threading.Event()

    def running(request: ScriptedRequest) -> None:
        begun.set()
        ended.wait(30)

    server.steps = [running]
    process = ws.process("exec", *words, "--timeout", "90", "box", "sleep", "80")
    assert begun.wait(60)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=30)
    ended.set()
    assert (process.returncode, output) == (130, b"")
    assert said in errors
    assert b"Traceback" not in errors


def test_output_of_a_program_is_there_as_it_comes(server: Script, ws: Ws) -> None:
    may_end = threading.Event()

    def running(request: ScriptedRequest) -> None:
        command_stream(command_output("stdout", b"one\n"))(request)
        assert may_end.wait(60)
        request.wfile.write(b'event: stderr\ndata: {"data": "dHdv", "lossy": false}\n\n')
        request.wfile.write(b'event: exit\ndata: {"exit_code": 4, "duration_ms": 1, "timed_out": true}\n\n')

    server.steps = [running]
    process = ws.process("exec", "--timeout", "7", "box", "make")
    assert process.stdout is not None
    assert process.stdout.readline() == b"one\n"
    may_end.set()
    output, errors = process.communicate(timeout=60)
    assert (output, process.returncode) == (b"", 4)
    assert errors.startswith(b"two")
    assert b"killed after 7 seconds" in errors


def test_a_connection_that_is_lost_while_a_program_runs_is_said_and_nothing_runs_twice(server: Script, ws: Ws) -> None:
    server.steps = [command_stream(command_output("stdout", b"one\n"), cut=True), command_stream(command_end())]
    found = ws.run("exec", "box", "make")
    assert (found.exit_code, found.stdout) == (125, "one\n")
    assert "The connection was lost while the command ran" in found.stderr
    assert len(server.seen) == 1


def test_results_go_to_stdout_and_all_else_to_stderr(server: Script, ws: Ws) -> None:
    made = workspace(ready=True, provisioning={"state": "ready", "phase": "x", "progress": 100, "message": "Booting"})
    states: list[Any] = [answer(201, {"workspace": made}), answer(200, {"workspace": made})]
    server.steps = [*states, *states]
    plain = ws.run("create", "--wait")
    assert (plain.stdout, "Booting" in plain.stderr) == ("box\n", True)
    as_json = ws.run("create", "--wait", "--json")
    assert (json.loads(as_json.stdout)["slug"], as_json.stderr) == ("box", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_for_completion(ws: Ws, shell: str) -> None:
    command = [PROGRAM[0], "-c", "import sys; sys.argv[0] = 'ws'; from microvm.cli.entry import main; main()"]
    environment = {**ws.environment, "_WS_COMPLETE": f"source_{shell}"}
    with TerminalProcess(command, environment, (200, 50)) as terminal:
        shown = terminal.read_until(f"complete_{shell}")
        assert terminal.wait() == 0
    assert "ws" in shown


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["--help"]])
def test_a_stdout_that_was_closed_is_one_sentence(server: Script, ws: Ws, words: list[str]) -> None:
    server.steps = [answer(200, {"success": True, "workspaces": [workspace()]})]
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *PROGRAM, *words]
    found = subprocess.run(command, env=ws.environment, stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode == 1
    assert len(found.stderr.splitlines()) == (1 if "--json" in words else 2)  # and a hint
    assert "Bad file descriptor" in found.stderr


def test_a_closed_stdin_or_stderr_ends_nothing(server: Script, ws: Ws) -> None:
    server.steps = [answer(200, {"success": True, "workspaces": []})]
    words = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", *PROGRAM, "list", "--json"]
    found = subprocess.run(words, env=ws.environment, stdout=subprocess.PIPE, text=True, check=False)
    assert (found.returncode, found.stdout) == (0, "[]\n")
