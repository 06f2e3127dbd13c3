"""`ws terminal` in a pseudo-terminal, on a sandbox whose guest is a process of this host, and through a relay."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes import services
from tests.clients.cli.runner import PROGRAM, TerminalProcess, Ws
from tests.sandboxes.sockets.conftest import Box
from tests.sandboxes.sockets.page import Relay

CODE = """
import sys
from microvm.cli.terminal import Keyboard, open_sandbox_terminal
say = lambda text: print(f"said: {text}", flush=True)
attach = int(sys.argv[4]) if len(sys.argv) > 4 else None
sys.exit(open_sandbox_terminal(sys.argv[1], sys.argv[2], Keyboard(0, 1), program=sys.argv[3], attach=attach, say=say))
"""
SHELL = "echo ready; exec sh"


@pytest.fixture
def relay(box: Box) -> Iterator[Relay]:
    made = Relay(box.streams.socket)
    yield made
    made.close()


class Opener:
    """Opens terminals of the box, through the relay."""

    def __init__(self, box: Box, relay: Relay, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{relay.port}/s/{box.sandbox.pk}"
        self._box, self._ws = box, Ws(folder)

    def open(self, program: str = SHELL, *more: str, token: str = "") -> TerminalProcess:
        words = [PROGRAM[0], "-c", CODE, self._url, token or self._box.token, program, *more]
        return TerminalProcess(words, self._ws.environment)


@pytest.fixture
def opener(box: Box, relay: Relay, tmp_path: Path) -> Opener:
    return Opener(box, relay, tmp_path)


def test_a_program_gets_keys_sizes_and_gives_its_code(opener: Opener) -> None:
    with opener.open() as terminal:
        terminal.read_until("ready")
        assert terminal.is_raw()
        terminal.write("stty size\r")
        terminal.read_until("30 100")
        terminal.resize(71, 19)
        terminal.write("sleep 0.3; stty size\r")
        terminal.read_until("19 71")
        # By a program of its own: between two commands the shell has the signal, and the second one begins.
        terminal.write("sh -c \"echo beg''un; exec sleep 100\"\r")
        terminal.read_until("begun")
        terminal.write("\x03")
        terminal.read_until("^C")
        terminal.write("echo in''terrupted\r")
        terminal.read_until("interrupted")
        terminal.write("exit 7\r")
        assert terminal.wait() == 7
        assert terminal.is_restored()


def test_it_comes_back_after_a_lost_connection_and_loses_no_output(opener: Opener, relay: Relay) -> None:
    with opener.open() as terminal:
        terminal.read_until("ready")
        relay.cut(refuse=True)
        terminal.read_until("reconnecting")
        terminal.write("echo ty''ped while away\r")
        relay.accept()
        terminal.read_until("typed while away")
        terminal.write("i=0; while [ $i -lt 20000 ]; do echo line-$i; i=$((i+1)); done; echo al''l\r")
        terminal.read_until("line-100\r\n")
        relay.cut()
        shown = terminal.read_until("all\r\n")
        output = shown.replace("\r\n[ws: reconnecting; Ctrl-C leaves]\r\n", "")  # also in the middle of a line
        lines = [line for line in output.splitlines() if line.startswith("line-")]
        assert lines == [f"line-{number}" for number in range(101, 20000)]
        terminal.write("exit 0\r")
        assert terminal.wait() == 0


def test_a_streams_process_that_is_killed_is_a_lost_connection(opener: Opener, box: Box) -> None:
    with opener.open() as terminal:
        terminal.read_until("ready")
        box.streams.kill()
        terminal.read_until("reconnecting")
        box.streams.start()
        terminal.write("echo bac''k\r")
        terminal.read_until("back")
        terminal.write("exit 3\r")
        assert terminal.wait() == 3


def test_it_is_left_and_attached_again(opener: Opener) -> None:
    with opener.open() as terminal:
        terminal.read_until("ready")
        terminal.write("kept=yes\r")
        terminal.write("\r~.")
        text = terminal.read_until("--attach ")
        assert terminal.wait() == 0
        assert terminal.is_restored()
        number = (text + bytes(terminal.seen).decode()).partition("--attach ")[2].split()[0]
    with opener.open("unused", number) as terminal:
        terminal.read_until("ready")
        terminal.write("echo $kept''!\r")
        terminal.read_until("yes!")
        terminal.write("exit\r")
        assert terminal.wait() == 0


@pytest.mark.parametrize("name", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(opener: Opener, name: signal.Signals) -> None:
    with opener.open() as terminal:
        terminal.read_until("ready")
        os.kill(terminal.process.pid, name)
        terminal.wait()
        assert terminal.is_restored()


def test_ctrl_c_leaves_while_there_is_no_connection(opener: Opener, relay: Relay) -> None:
    with opener.open() as terminal:
        terminal.read_until("ready")
        relay.cut(refuse=True)
        terminal.read_until("reconnecting")
        terminal.write("\x03")
        assert terminal.wait() == 0
        assert terminal.is_restored()


def test_a_token_that_ends_is_said(opener: Opener, box: Box) -> None:
    with opener.open(token="sbt_unknown") as terminal:
        terminal.read_until("Unauthorized")
        assert terminal.wait() == 1
        assert terminal.is_restored()
    with opener.open() as terminal:
        terminal.read_until("ready")
        services.token_regenerate(workspace=box.sandbox.workspace, actor="owner")
        terminal.read_until("token of the sandbox has ended")
        assert terminal.wait() == 1
        assert terminal.is_restored()


def test_a_terminal_that_is_gone_is_said(opener: Opener) -> None:
    with opener.open("unused", "9") as terminal:
        terminal.read_until("does not exist any more")
        assert terminal.wait() == 1
        assert terminal.is_restored()
