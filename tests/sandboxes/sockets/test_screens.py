"""A client that comes back sees what one sees that never left, by the screens of xterm.js without a browser."""

from __future__ import annotations

import base64
import json
import os
import random
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.run_extent import campaign_after
from tests.sandboxes.sockets.client import WebSocketClient
from tests.sandboxes.sockets.conftest import Box

pytestmark = pytest.mark.django_db(transaction=True)
HEADLESS = Path(sys.prefix) / "share/npm/headless/xterm-headless.mjs"
SIZE = {"cols": 80, "rows": 24}
# What is quiet for so long has drawn its screen: only how often it is looked depends on it.
QUIET_SECONDS = 0.7
KEPT = 320 * 1024  # bytes, at most, by guest and streams
POINTS = 4  # of each program: 20 of all
# Words of the command, and what is typed at random.
PROGRAMS = {
    "bash": (
        ["bash", "--norc", "-i"],
        ["ls /\r", "seq 500\r", "echo wide 漢字 $((6*7))\r", "\x1b[A", "clear\r", "false", "\x15"],
    ),
    "less": (["less", "FILE"], [" ", "b", "G", "g", "/77\r", "n", "j", "k"]),
    "vim": (
        ["vim", "-u", "NONE", "-N", "-n", "FILE"],
        ["\x06", "\x02", "G", "gg", "iword \x1b", "dd", "u", ":set nu\r", ":2\r"],
    ),
    "top": (["top", "-d", "3600"], [" ", "c", "1", "M", "P", "V"]),
    "tmux": (
        ["tmux", "-L", "SOCKET", "-f", "/dev/null", "new", "bash --norc", ";", "set", "status-right", ""],
        ["ls /\r", "seq 90\r", "\x02%", "\x02o", '\x02"', "\x02z", "echo text\r"],
    ),
}
# More output than is kept, first of all: the modes that the program set are in no byte of what is left.
FLOODS = {
    "bash": "seq 60000\r",
    "vim": ":set nomore|for i in range(300)|exe 'normal G'|redraw!|exe 'normal gg'|redraw!|endfor\r",
}


class Screens:
    """Terminals of one Node.js process, by name."""

    def __init__(self) -> None:
        assert HEADLESS.exists(), "scripts/npm.sh dev has not brought @xterm/headless"
        script = Path(__file__).with_name("screens.mjs")
        self._node = subprocess.Popen(
            ["node", str(script), str(HEADLESS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def make(self, name: str) -> None:
        self._say(make=name, **SIZE)

    def write(self, name: str, data: bytes) -> None:
        self._say(write=name, data=base64.b64encode(data).decode())

    def screen(self, name: str) -> dict[str, Any]:
        self._say(screen=name)
        assert self._node.stdout
        found: dict[str, Any] = json.loads(self._node.stdout.readline())
        return found

    def close(self) -> None:
        self._node.kill()
        self._node.communicate()

    def _say(self, **asked: Any) -> None:
        assert self._node.stdin
        self._node.stdin.write(json.dumps(asked).encode() + b"\n")
        self._node.stdin.flush()


class Viewer:
    """One client of a terminal, whose output goes to a screen."""

    def __init__(self, client: WebSocketClient, id: int, screens: Screens, name: str) -> None:
        self.client, self.id, self.screens, self.name = client, id, screens, name
        self.offset = 0
        screens.make(name)

    def read(self) -> bool:
        """What has come; whether anything has."""
        before = self.offset
        while select.select([self.client.socket], [], [], 0)[0]:
            self.client.receive()
        self.take()
        return self.offset > before

    def take(self) -> None:
        data = bytes(self.client.output.pop(self.id, b""))
        self.screens.write(self.name, data)
        self.offset += len(data)

    def attach(self, client: WebSocketClient) -> None:
        """As one that has kept its screen."""
        self.client = client
        found = client.ask("terminal_attached", action="terminal_attach", id=self.id, offset=self.offset)
        assert found["skipped"] == 0

    def restore(self, client: WebSocketClient) -> None:
        """As one that has nothing."""
        self.client = client
        found = client.ask("terminal_state", action="get_state", id=self.id, maxLines=1000)
        self.screens.make(self.name)
        self.screens.write(self.name, base64.b64decode(found["state"]))
        self.offset = found["offset"]


@pytest.fixture
def screens() -> Iterator[Screens]:
    made = Screens()
    yield made
    made.close()


def settle(*viewers: Viewer) -> None:
    """Until all have the same output and no more comes."""
    quiet_since, end = time.monotonic(), time.monotonic() + 60
    while time.monotonic() - quiet_since < QUIET_SECONDS or len({viewer.offset for viewer in viewers}) > 1:
        if sum(viewer.read() for viewer in viewers):
            quiet_since = time.monotonic()
        assert time.monotonic() < end, {viewer.name: viewer.offset for viewer in viewers}
        time.sleep(0.02)


@pytest.fixture
def tmux_socket(tmp_path: Path) -> Iterator[str]:
    """The name of a server that ends with the test: it is in no session and no cgroup of the terminal here."""
    name = f"{tmp_path.name}-{os.getpid()}"
    yield name
    subprocess.run(["tmux", "-L", name, "kill-server"], check=False, capture_output=True)


@pytest.mark.parametrize("program", campaign_after(2, PROGRAMS))
def test_a_client_that_comes_back_sees_what_one_sees_that_never_left(
    box: Box, screens: Screens, program: str, tmp_path: Path, tmux_socket: str
) -> None:
    assert shutil.which(program), f"{program} is not installed (packages.debian)"
    chance = random.Random(f"{program} 1")
    text = tmp_path / "text"
    text.write_text("".join(f"line {number} {'x' * (number % 90)}\n" for number in range(1000)))
    argv, keys = PROGRAMS[program]
    argv = [{"FILE": str(text), "SOCKET": tmux_socket}.get(word, word) for word in argv]
    client = box.connect()
    made = client.ask("terminal_created", action="terminal_create", command=argv[0], args=argv[1:], **SIZE)
    id = made["terminalId"]
    stayed, left = Viewer(client, id, screens, "stayed"), Viewer(box.connect(), id, screens, "left")
    left.attach(left.client)
    settle(stayed, left)
    stayed.client.send(a="i", id=id, d=FLOODS.get(program, ""))
    settle(stayed, left)
    assert program not in FLOODS or stayed.offset > KEPT
    for point in range(POINTS):
        stayed.client.send(a="i", id=id, d=chance.choice(keys))
        if chance.random() < 0.5:
            left.read()  # else it is cut before it had the answer
        left.client.socket.close()
        for _ in range(chance.randrange(3)):
            stayed.client.send(a="i", id=id, d=chance.choice(keys))
        if chance.random() < 0.5:
            settle(stayed)
        come_back = left.attach if point % 2 else left.restore
        come_back(box.connect())
        settle(stayed, left)
        assert screens.screen("left") == screens.screen("stayed"), (program, point, come_back.__name__)
