"""Clients that read slowly, not at all, or come back after the process was killed."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from sandboxes import services
from tests.run_extent import WHOLE, campaign_after
from tests.sandboxes.sockets.client import WebSocketClient
from tests.sandboxes.sockets.conftest import Box

pytestmark = pytest.mark.django_db(transaction=True)

MIB = 1 << 20
READY = b"ready\n"


def start(client: WebSocketClient, script: str, **fields: object) -> int:
    made = client.ask("terminal_created", action="terminal_create", command="sh", args=["-c", script], **fields)
    return int(made["terminalId"])


def test_a_client_that_never_reads_costs_little_memory_and_stops_its_program(box: Box, tmp_path: Path) -> None:
    watcher, client = box.connect(), box.connect()
    before = box.streams.memory()
    id = start(client, f"i=0; while :; do i=$((i+1)); echo $i > {tmp_path}/count; seq 1000; done")
    for _ in range(200):
        client.send(action="terminal_list")  # what it is answered, too, must not pile up
    seen = -1
    while (now := watcher.ask("terminal_list", action="terminal_list")["terminals"][0]["offset"]) != seen:
        seen = now
        time.sleep(3)
    assert box.streams.memory() - before < 4 * MIB
    data = b""
    while len(data) < MIB:
        client.receive()
        data = bytes(client.output.get(id, b""))
    numbers = data.split(b"\r\n")[:-1]
    assert numbers == [b"%d" % (at % 1000 + 1) for at in range(len(numbers))]


@pytest.mark.parametrize("apart", [False, True], ids=["one process", "two processes"])
def test_a_stuck_socket_gets_a_gap_and_does_not_hold_the_other(box: Box, tmp_path: Path, apart: bool) -> None:
    size = 8 * MIB
    data = os.urandom(size)
    (tmp_path / "data").write_bytes(data)
    quick = box.connect()
    stuck = box.connect(streams=box.another_process() if apart else None)
    id = start(quick, f"stty raw -echo; echo ready; head -c 1 > /dev/null; exec cat {tmp_path}/data")
    quick.read_until(id, READY)
    stuck.ask("terminal_attached", action="terminal_attach", id=id, offset=len(READY))
    quick.send(a="i", id=id, d="x")
    while len(quick.output[id]) < len(READY) + size:
        quick.receive()
    assert quick.output[id] == READY + data
    gap = stuck.expect("terminal_attached")
    while gap["skipped"] == 0:
        gap = stuck.expect("terminal_attached")
    stuck.expect("terminal_exited")
    gaps = [gap, *(each for each in stuck.messages if each["type"] == "terminal_attached")]
    assert len(stuck.output[id]) + sum(each["skipped"] for each in gaps) == size
    assert data.endswith(bytes(stuck.output[id][-MIB // 8 :]))


def test_with_ack_at_most_128_kib_are_unacknowledged(box: Box) -> None:
    client = box.connect()
    id = start(client, "stty raw; head -c 1000000 /dev/zero", ack=True)
    limit = 128 * 1024
    while len(client.output.get(id, b"")) < limit:
        client.receive()
    client.socket.settimeout(2)
    with pytest.raises(socket.timeout):
        client.receive()
    client.socket.settimeout(60)
    got = limit
    while got < 1_000_000:
        assert len(client.output[id]) <= got + limit
        client.send(a="k", id=id, n=limit)
        got = min(1_000_000, got + limit)
        while len(client.output[id]) < got:
            client.receive()
    assert client.expect("terminal_exited")["exitCode"] == 0


@pytest.mark.timeout(3600 if WHOLE else 900)
@pytest.mark.parametrize("by", campaign_after(1, [signal.SIGKILL, signal.SIGTERM]), ids=["killed", "restarted"])
def test_no_byte_is_lost_or_doubled_by_ends_of_the_process(box: Box, tmp_path: Path, by: signal.Signals) -> None:
    size, kills = (100 * MIB, 50) if WHOLE else (8 * MIB, 3)
    (tmp_path / "data").write_bytes(data := os.urandom(size))
    client = box.connect()
    id = start(client, f"stty raw; exec cat {tmp_path}/data")
    seen = bytearray()
    for kill in range(1, kills + 1):
        while len(seen) + len(client.output.get(id, b"")) < size * kill // (kills + 1):
            client.receive()
        box.streams.kill(by)
        client.wait_gone()
        seen += client.output.get(id, b"")
        box.streams.start()
        client = box.connect()
        attached = client.ask("terminal_attached", action="terminal_attach", id=id, offset=len(seen))
        assert (attached["offset"], attached["skipped"]) == (len(seen), 0)
    assert client.expect("terminal_exited")["exitCode"] == 0
    seen += client.output[id]
    assert len(seen) == size
    assert hashlib.sha256(seen).digest() == hashlib.sha256(data).digest()


def test_a_stuck_client_is_cut_when_its_token_ends(box: Box) -> None:
    client = box.connect()
    start(client, "yes")
    time.sleep(2)
    services.token_regenerate(workspace=box.sandbox.workspace, actor="owner")
    time.sleep(6)
    # What was on its way, and then the end: no output is made for it any more.
    received = 0
    try:
        while block := client.socket.recv(MIB):
            received += len(block)
    except ConnectionError:
        pass
    assert received < 4 * MIB
