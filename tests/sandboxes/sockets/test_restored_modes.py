"""The modes of a terminal whose output was dropped: right after a kill of streams, and at the place where they held."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.sandboxes.sockets.client import WebSocketClient
from tests.sandboxes.sockets.conftest import Box

pytestmark = pytest.mark.django_db(transaction=True)
# More than guest and streams keep.
FLOOD = "seq 100000"


def start(box: Box, script: str, until: bytes) -> int:
    """A terminal with a script that has printed so much; its only client is gone afterwards."""
    client = box.connect()
    made = client.ask("terminal_created", action="terminal_create", command="sh", args=["-c", script])
    client.read_until(made["terminalId"], until)
    client.socket.close()
    return int(made["terminalId"])


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def state(client: WebSocketClient, id: int, lines: int) -> bytes:
    return base64.b64decode(client.ask("terminal_state", action="get_state", id=id, maxLines=lines)["state"])


def test_modes_that_were_set_before_all_that_is_kept_outlive_a_kill(box: Box) -> None:
    script = rf"printf '\033[?1049h\033[?1h\033[?2004h\033[?1006h\033[?1002h\033='; {FLOOD}; echo drawn; sleep 1000"
    id = start(box, script, b"drawn\r\n")
    box.streams.kill()
    box.streams.start()
    expected = b"\x1b[?1049h\x1b[?1h\x1b[?1006h\x1b[?2004h\x1b[?1002h\x1b=drawn\r\n"
    assert state(box.connect(), id, 2) == expected


def test_modes_that_were_set_while_no_client_was_there_are_known(box: Box, tmp_path: Path) -> None:
    left, printed = tmp_path / "left", tmp_path / "printed"
    script = (
        rf"echo ready; until [ -e {left} ]; do sleep 0.1; done; printf '\033[?1049h\033[?2004h'; {FLOOD};"
        rf"echo drawn; touch {printed}; sleep 1000"
    )
    id = start(box, script, b"ready\r\n")
    left.touch()
    until(printed.exists)
    assert state(box.connect(), id, 2) == b"\x1b[?1049h\x1b[?2004hdrawn\r\n"


def test_lines_are_shown_again_in_the_modes_in_which_they_were_printed(box: Box) -> None:
    script = rf"printf '\033[?1049h'; {FLOOD}; printf '\033[?1049l'; echo left; sleep 1000"
    id = start(box, script, b"left\r\n")
    assert state(box.connect(), id, 3) == b"\x1b[?1049h100000\r\n\x1b[?1049lleft\r\n"
