"""A client that asks for much at once costs the clients of others a turn, not a wait."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from wsproto.events import Message as Sent

from tests.sandboxes.sockets.client import WebSocketClient
from tests.sandboxes.sockets.conftest import Box

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
