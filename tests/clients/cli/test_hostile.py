"""What goes wrong around `ws`: guests and services that deceive, files that change, full disks, signals, readers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from microvm import Microvm, Retries
from microvm.cli.app import make_app
from microvm.cli.completion import profile_names, workspace_names
from microvm.cli.profiles import Profile, ProfileStore
from microvm.cli.ssh import SshOptions, environment_of_children, ssh_words
from microvm.errors import ConnectionFailed
from microvm.types.ssh import Ssh
from tests.clients.cli.runner import PROGRAM, TerminalProcess, Ws
from tests.clients.cli.test_commands import HOSTILE, answer, workspace
from tests.clients.scripted_server import (
    Script,
    ScriptedRequest,
    Step,
    command_end,
    command_output,
    command_stream,
    scripted_server,
)
from tests.clients.test_transfers import CONTENT, file_of, rest_of, stored

CONTROLS = {"\x1b", "\x07", "\r", "\u202e", "\x9b"}
FAST = Retries(attempts=3, first_wait=0.001)


@pytest.fixture
def ws(server: Script, tmp_path: Path) -> Ws:
    names = {"MICROVM_URL": server.url, "MICROVM_CLIENT_ID": "c", "MICROVM_CLIENT_SECRET": "the-secret"}
    return Ws(tmp_path / "config", names)


def listing(*entries: tuple[str, str]) -> Step:
    rows = [
        {"name": name, "path": f"/srv/{name}", "type": kind, "size": 1, "mode": 0o644, "modified": "x"}
        for name, kind in entries
    ]
    body = {"success": True, "path": "/srv", "count": len(rows), "entries": rows, "truncated": False}
    return answer(200, {**body, "next_cursor": None})


def refused(code: str) -> Step:
    return answer(404 if code == "path_not_found" else 400, {"code": code, "message": "No."})


def waiting(ended: threading.Event, begun: threading.Event, head: bytes = b"") -> Step:
    """The beginning of an answer, and no more of it."""

    def step(request: ScriptedRequest) -> None:
        request.answer(200, {"Content-Length": "100000"}, head)
        request.wfile.flush()
        begun.set()
        ended.wait(30)

    return step


# Texts of guests and services


def test_a_creation_that_fails_says_why_without_control_characters(server: Script, ws: Ws) -> None:
    state = {"state": "failed", "phase": "failed", "progress": 1, "message": "x", "error": {"message": HOSTILE}}
    made = workspace(ready=False, provisioning=state)
    server.steps = [answer(201, {"workspace": made}), answer(200, {"workspace": made})]
    text = ws.fails(1, "create", "--wait")
    assert "\\x1b]0;title" in text
    assert not set(text) & CONTROLS


@pytest.mark.parametrize("name", ["$(touch x)", "\\$(touch x)", "`x`", "a b", "a;b", "a'b", 'a"b', "a\nb", "-rf", "*"])
def test_what_a_shell_would_evaluate_is_no_completion(
    server: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("MICROVM_CONFIG_DIR", str(tmp_path))
    store = ProfileStore(tmp_path)
    for each in (name, "good-1.x"):
        store.save(each, Profile(server.url, "c", "s"))
    server.steps = [answer(200, {"success": True, "workspaces": [workspace(slug=name), workspace(slug="box")]})]
    context = typer.Context(get_command(make_app()))
    assert workspace_names(context, "") == ["box"]
    assert profile_names("") == ["good-1.x"]


# Credentials


@pytest.mark.parametrize("secret", ["quinine\r", "quinine ", "quinine\nx", "quinine\u00e4"])
def test_a_secret_that_cannot_be_sent_is_not_shown(server: Script, ws: Ws, secret: str) -> None:
    ws.variables["MICROVM_CLIENT_SECRET"] = secret
    text = ws.fails(2, "list")
    assert "client secret" in text
    assert "quinine" not in text
    assert server.seen == []
    with pytest.raises(ValueError, match="client secret") as error:
        Microvm(server.url, client_id="c", client_secret=secret)
    assert "quinine" not in str(error.value)
    with pytest.raises(ValueError, match="token"):
        Microvm(server.url, token=secret)


def test_an_address_with_a_password_is_refused(ws: Ws) -> None:
    for url in ("http://:pw@x", "http://a\x01b"):
        ws.variables["MICROVM_URL"] = url
        assert "no address" in ws.fails(2, "list")


def test_programs_that_it_starts_have_no_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MICROVM_CLIENT_SECRET", "the-secret")
    assert "PATH" in environment_of_children()
    assert "the-secret" not in environment_of_children().values()


def test_a_guest_gets_no_agent_whatever_the_users_configuration_says(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n ForwardAgent yes\n ForwardX11 yes\n ControlMaster auto\n ControlPath /tmp/c-%h\n")
    access: Ssh = {
        "ssh_enabled": True, "ssh_id": "ws_1", "host": "10.0.0.1", "port": 22, "user": "root", "host_key": "k",
        "keys": [],
    }  # fmt: skip
    words = ssh_words(access, tmp_path / "key", tmp_path / "known", SshOptions(), [])
    shown = subprocess.run(["ssh", "-G", "-F", config, *words[1:]], capture_output=True, text=True, check=True).stdout
    found = dict(line.partition(" ")[::2] for line in shown.splitlines())
    assert (found["forwardagent"], found["forwardx11"]) == ("no", "no")
    assert found.get("controlpath", "none") == "none"


# Copies


def test_a_device_is_not_replaced_by_a_file(server: Script, ws: Ws, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    server.steps = [refused("path_invalid"), file_of(b"content", "a")]
    assert "no regular file" in ws.fails(1, "cp", "box:/srv/a", tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    assert len(server.seen) == 1


def test_a_file_that_grows_is_copied_as_it_was(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(CONTENT)

    def grow(done: int, total: int | None) -> None:
        with log.open("ab") as file:
            file.write(b"more" * 100_000)

    with scripted_server(stored) as script, Microvm(script.url, token="t", retries=FAST) as client:
        assert client.files.upload("box", "/log", log, progress=grow)["size"] == len(CONTENT)


def test_a_file_that_shrinks_is_no_lost_connection(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(CONTENT)

    def shrink(done: int, total: int | None) -> None:
        os.truncate(log, 300_000)

    with (
        scripted_server(*[stored] * 3) as script,
        Microvm(script.url, token="t", retries=FAST) as client,
        pytest.raises(OSError, match="bytes now"),
    ):
        client.files.upload("box", "/log", log, progress=shrink)
    assert len(script.seen) <= 1


def test_a_part_of_a_file_that_breaks_off_is_an_error_of_the_client() -> None:
    with (
        scripted_server(file_of(CONTENT, "a", sent=10)) as script,
        Microvm(script.url, token="t", retries=FAST) as client,
        pytest.raises(ConnectionFailed),
    ):
        client.files.read_part("box", "/a", length=1000)


def test_standard_streams_need_no_memory_for_the_whole_file(server: Script, ws: Ws) -> None:
    """With 250 MiB of address space beside what the program has, 600 MB go through."""
    size, piece = 600 << 20, bytes(1 << 20)

    def large(request: ScriptedRequest) -> None:
        request.answer(200, {"Content-Length": str(size)})
        for _ in range(size >> 20):
            request.wfile.write(piece)

    limited = (
        "import resource, sys; from microvm.cli.entry import main; import microvm.cli.app; "
        "pages = int(open('/proc/self/statm').read().split()[0]); most = pages * 4096 + (250 << 20); "
        "resource.setrlimit(resource.RLIMIT_AS, (most, most)); main()"
    )
    server.steps = [large]
    process = subprocess.Popen(
        [sys.executable, "-c", limited, "cp", "box:/large", "-"], env=ws.environment, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    received = sum(len(part) for part in iter(lambda: process.stdout.read(1 << 20), b""))
    assert (process.wait(120), received) == (0, size)


def test_a_pipe_goes_on_after_a_lost_connection_and_never_gets_two_files(server: Script, ws: Ws) -> None:
    server.steps = [file_of(CONTENT, "a", sent=600_000), rest_of(CONTENT, "a")]
    assert ws.run("cp", "box:/a", "-").stdout_bytes == CONTENT
    server.steps = [file_of(CONTENT, "a", sent=600_000), file_of(CONTENT[::-1], "b")]
    found = ws.run("cp", "box:/a", "-")
    assert (found.exit_code, found.stdout_bytes) == (7, CONTENT[:600_000])


def test_a_name_that_is_no_utf8_is_one_sentence(server: Script, ws: Ws, tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    odd.write_text("x")
    server.steps = [refused("path_not_found")]
    assert "UTF-8" in ws.fails(2, "cp", odd, "box:/srv/")
    process = ws.process("exec", "box", "echo", os.fsdecode(b"\xff"))
    assert b"UTF-8" in process.communicate()[1]
    assert process.returncode == 125


# Disks and settings


@pytest.mark.parametrize("words", [["create"], ["create", "--sandbox"]])
def test_what_was_created_is_named_also_where_nothing_can_be_kept(
    server: Script, ws: Ws, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / "config" / ".recent.json.lock").mkdir(parents=True)
    made = {**workspace(slug="new-one"), "token": "sbt_1", "url": "http://x"}
    server.steps = [answer(201, {"workspace": made, "sandbox": made})]
    found = ws.run(*words, "--json")
    assert found.exit_code == 0, found.output
    assert json.loads(found.stdout)["id"] == "ws_1"
    assert "cannot remember" in found.stderr


def test_each_of_several_is_removed_although_nothing_can_be_forgotten(server: Script, ws: Ws, tmp_path: Path) -> None:
    (tmp_path / "config" / ".recent.json.lock").mkdir(parents=True)
    server.steps = [answer(200, {"workspace": workspace()}), answer(200, {"success": True})] * 2
    assert "Deleted one, two" in ws.output("rm", "-y", "one", "two")


# Output and signals


def test_a_full_disk_behind_stdout_is_one_sentence(server: Script, ws: Ws) -> None:
    server.steps = [answer(200, {"success": True, "workspaces": [workspace()]})]
    with Path("/dev/full").open("wb") as full:
        process = ws.process("list", stdout=full)
        said = process.communicate()[1].decode()
    assert process.returncode == 1
    assert said.splitlines() == ["Error: No space left on device.", "Hint: Free some of the disk, and try again."]


def test_a_reader_that_goes_away_is_the_same_for_every_output(server: Script, ws: Ws) -> None:
    server.steps = [answer(200, {"port": {"port": 1, "url": "http://x", "label": ""}})]
    process = ws.process("port", "publish", "1", "box")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(120) == 141


def test_a_locale_without_its_characters_ends_no_command(server: Script, ws: Ws) -> None:
    ws.variables |= {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    stream = command_stream(command_output("stdout", "\u2713 ok\n".encode()), command_end(3))
    server.steps = [stream, answer(200, {"success": True, "workspaces": [workspace(slug="\u2713")]})]
    process = ws.process("exec", "box", "true")
    assert (process.communicate()[0], process.returncode) == ("\u2713 ok\n".encode(), 3)
    assert b"\\u2713" in ws.process("list").communicate()[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_no_part_of_a_file_and_no_hidden_cursor(
    server: Script, ws: Ws, tmp_path: Path, number: signal.Signals
) -> None:
    ended, begun = threading.Event(), threading.Event()
    server.steps = [refused("path_invalid"), waiting(ended, begun, b"x" * 5000)]
    command = [*PROGRAM, "cp", "box:/a", str(tmp_path / "a")]
    with TerminalProcess(command, ws.environment) as terminal:
        terminal.read_until("\x1b[?25l")
        assert begun.wait(120)
        until = time.monotonic() + 120
        while not list(tmp_path.glob(".*.part")):
            assert time.monotonic() < until
            time.sleep(0.01)
        os.kill(terminal.process.pid, number)
        terminal.read_until("\x1b[?25h")
        assert terminal.wait() == 128 + number
    ended.set()
    assert not list(tmp_path.glob(".*.part"))
