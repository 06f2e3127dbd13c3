"""Sandboxes of two accounts in one process, whose terminals have the same ids: neither sees a byte of the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.callers import Caller
from tests.sandboxes.rows import make_sandbox
from tests.sandboxes.sockets.client import Refused, WebSocketClient
from tests.sandboxes.sockets.conftest import Box
from tests.vmbackend.hold_factory import LocalHold

pytestmark = pytest.mark.django_db(transaction=True)

TERMINALS = 4
WANTED = 1 << 20  # bytes of each


@pytest.fixture
def boxes(box: Box, stranger: Caller) -> Iterator[list[Box]]:
    """Their guests have the same address and differ by the machine's id alone."""
    fields = {"ip": "10.0.0.2", "control_port": 22, "ssh_host_key": "ssh-ed25519 none"}
    sandbox, token = make_sandbox(stranger.account, host=None, status="running", ready=True, **fields)
    other = Box(sandbox, token, box.streams, LocalHold(box.streams.helper, box.streams.folder / sandbox.workspace_id))
    yield [box, other]
    other.close()


def begin(client: WebSocketClient, letter: str) -> list[int]:
    script = f"stty raw -echo; yes {letter} | tr -d '\\n' | head -c {WANTED}; cat"
    made = [
        client.ask("terminal_created", action="terminal_create", command="sh", args=["-c", script])
        for _ in range(TERMINALS)
    ]
    return [each["terminalId"] for each in made]


class Reader:
    """Terminals that print one letter, and how far sockets that were lost have seen them.

    A socket that takes nothing for two seconds is not waited for, and gets a gap: beside other work that happens here.
    """

    def __init__(self, box: Box, letter: str) -> None:
        self.box, self.letter, self.client = box, letter.encode(), box.connect()
        self.ids = begin(self.client, letter)
        self.seen = dict.fromkeys(self.ids, 0)

    def read(self, size: int) -> None:
        """So many bytes of all terminals together."""
        while sum(self.seen[id] + self._received(id) for id in self.ids) < size:
            self.client.receive()

    def _received(self, id: int) -> int:
        """By the present socket, with gaps."""
        gaps = (each for each in self.client.messages if each["type"] == "terminal_attached")
        return len(self.client.output.get(id, b"")) + sum(each["skipped"] for each in gaps if each["terminalId"] == id)

    def count(self) -> None:
        """What the present socket has received is right."""
        for data in self.client.output.values():
            assert data == self.letter * len(data)
        for id in self.ids:
            self.seen[id] += self._received(id)

    def come_back(self) -> None:
        self.client = self.box.connect()
        for id, offset in self.seen.items():
            found = self.client.ask("terminal_attached", action="terminal_attach", id=id, offset=offset)
            self.seen[id] += found["skipped"]


def test_output_is_not_mixed_by_kills_of_the_process(boxes: list[Box]) -> None:
    readers = [Reader(box, letter) for box, letter in zip(boxes, "ab", strict=True)]
    assert readers[0].ids == readers[1].ids
    for kill in range(1, 4):
        for reader in readers:
            reader.read(TERMINALS * WANTED * kill // 4)
        boxes[0].streams.kill()
        for reader in readers:
            reader.client.wait_gone()
            reader.count()
        boxes[0].streams.start()
        for reader in readers:
            reader.come_back()
    for reader in readers:
        reader.read(TERMINALS * WANTED)
        reader.count()
        assert reader.seen == dict.fromkeys(reader.ids, WANTED)


def test_the_token_of_one_opens_nothing_of_the_other(boxes: list[Box]) -> None:
    mine, other = boxes
    with pytest.raises(Refused) as refused:
        mine.connect(token=other.token)
    assert refused.value.status == 403
    theirs = other.connect()
    id = begin(theirs, "b")[0]
    client = mine.connect()
    assert client.ask("terminal_list", action="terminal_list")["terminals"] == []
    for message in (
        {"action": "terminal_attach", "id": id},
        {"action": "get_state", "id": id},
        {"a": "i", "id": id, "d": "x"},
    ):
        assert client.ask("terminal_error", **message)["code"] == "terminal_not_found"
    client.send_raw(bytes([id]) + b"x")
    assert client.expect("terminal_error")["code"] == "terminal_not_found"
