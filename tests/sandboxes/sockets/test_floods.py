"""A client that asks for much at once costs the clients of others a turn, not a wait."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress

import pytest
from wsproto.events import Message as Sent

from tests.sandboxes.sockets.client import WebSocketClient
from tests.sandboxes.sockets.conftest import Box
from tests.sandboxes.sockets.flood import KINDS, MASK

pytestmark = pytest.mark.django_db(transaction=True)

ASKED = 40
# Each of its bytes has to be followed: the longest work for one state.
MODES = r"""printf "$(yes '\033[?7h\033[?7l' | head -n 25000 | tr -d '\n')"; echo; echo ready; cat"""


def expensive_terminal(client: WebSocketClient) -> int:
    made = client.ask("terminal_created", action="terminal_create", command="sh", args=["-c", MODES])
    id: int = made["terminalId"]
    client.read_until(id, b"ready")
    return id


def test_many_states_at_once_do_not_hold_up_another_socket(box: Box) -> None:
    greedy, other = box.connect(), box.connect()
    id = expensive_terminal(greedy)
    question = json.dumps({"action": "get_state", "id": id, "maxLines": 1})
    greedy.socket.sendall(b"".join(greedy._connection.send(Sent(data=question)) for _ in range(ASKED)))
    for _ in range(3):
        other.ask("terminal_list", action="terminal_list")
    greedy.socket.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            greedy.receive()
    received = sum(each["type"] == "terminal_state" for each in greedy.messages)
    assert received < ASKED


def test_output_goes_on_after_a_state_that_took_long(box: Box) -> None:
    client = box.connect()
    id = expensive_terminal(client)
    for number in range(3):
        client.send(action="get_state", id=id, maxLines=2)
        client.send(a="i", id=id, d=f"line {number}\r")
    client.output.clear()
    offset = [client.expect("terminal_state")["offset"] for _ in range(3)][-1]
    client.read_until(id, b"line 2\r\nline 2\r\n")
    listed = client.ask("terminal_list", action="terminal_list")["terminals"]
    assert offset <= listed[0]["offset"]


@pytest.mark.parametrize("kind", ["pings", "pongs", "fragments"])
def test_too_many_frames_that_are_no_message_close_the_socket(box: Box, kind: str) -> None:
    first, frame = KINDS[kind]
    client, other = box.connect(), box.connect()
    client.socket.sendall(first + frame * 40_000)
    assert client.wait_closed().code == 1008
    other.ask("terminal_list", action="terminal_list")


def test_a_refused_client_that_goes_on_is_cut_off(box: Box) -> None:
    client = box.connect()
    pings = KINDS["pings"][1] * 8_000_000  # some times what is read of it and what sockets hold
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        client.socket.sendall(pings)
    box.connect().ask("terminal_list", action="terminal_list")


def test_pings_and_fragments_below_the_limit_are_served(box: Box) -> None:
    client = box.connect()
    text = b'{"action": "terminal_list"}'
    parts = [b"\x00\x81" + MASK + bytes((each,)) for each in text[1:]]
    parts = [b"\x01\x81" + MASK + text[:1], *parts, b"\x80\x80" + MASK]
    for ping in (KINDS["pings"][1], KINDS["pongs"][1]):
        client.socket.sendall(ping.join(parts[:20]) + b"".join(parts[20:]))
        client.expect("terminal_list")
        time.sleep(1.1)


def test_a_reset_after_many_pings_writes_no_line_for_each(box: Box) -> None:
    before = box.streams.log.stat().st_size
    for _ in range(5):
        client = box.connect()
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        client.socket.sendall(KINDS["pings"][1] * 40_000)
        client.socket.close()
    box.connect().ask("terminal_list", action="terminal_list")
    assert box.streams.log.stat().st_size - before < 5000
