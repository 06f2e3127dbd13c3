"""Watches over sockets: what is reported, and what ends them."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes.sockets.client import WebSocketClient
from tests.sandboxes.sockets.conftest import Box
from vmbackend.guest.hold import HoldClient

pytestmark = pytest.mark.django_db(transaction=True)

MIB = 1 << 20
EVENTS = ("watch_add", "watch_change", "watch_unlink", "watch_overflow", "watch_error")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


def start(client: WebSocketClient, folder: Path, *ignored: str) -> int:
    asked: dict[str, Any] = {"type": "watch", "path": str(folder), "ignorePatterns": list(ignored), "requestId": 7}
    begun = client.ask("watch_started", **asked)
    assert (begun["path"], begun["requestId"]) == (str(folder), 7)
    return int(begun["watchId"])


def next_event(client: WebSocketClient) -> dict[str, Any]:
    while True:
        for found in client.messages:
            if found["type"] in EVENTS:
                client.messages.remove(found)
                return found
        client.receive()


def test_changes_are_reported_with_absolute_paths_and_ignored_ones_are_not(box: Box, tree: Path) -> None:
    client = box.connect()
    (tree / "old").touch()
    id = start(client, tree, "*.log", "build/")
    (tree / "build").mkdir()
    (tree / "a.log").touch()
    (tree / "src").mkdir()
    top = {"watchId": id, "entry": "file"}
    assert next_event(client) == {**top, "type": "watch_add", "path": f"{tree}/src", "entry": "directory"}
    (tree / "old").rename(tree / "src/new")
    (tree / "src/new").unlink()
    former, new = f"{tree}/old", f"{tree}/src/new"
    assert next_event(client) == {**top, "type": "watch_unlink", "path": former, "renamedTo": new}
    assert next_event(client) == {**top, "type": "watch_add", "path": new, "renamedFrom": former}
    assert next_event(client) == {**top, "type": "watch_unlink", "path": new}


def test_names_that_are_no_utf8_have_their_bytes(box: Box, tree: Path) -> None:
    client = box.connect()
    start(client, tree)
    (tree / os.fsdecode(b"\xff a")).touch()
    event = next_event(client)
    assert event["encodedPath"] == f"{tree}/%FF%20a"


def test_a_watch_is_ended_by_its_id_or_with_all_others(box: Box, tree: Path) -> None:
    client = box.connect()
    ids = [start(client, tree) for _ in range(8)]
    refused = client.ask("watch_error", type="watch", path=str(tree), requestId="ninth")
    assert (refused["code"], refused["requestId"]) == ("watch_limit", "ninth")
    stopped = client.ask("watch_stopped", type="stop_watch", watchId=ids[0], requestId="s")
    assert stopped == {"type": "watch_stopped", "watchIds": ids[:1], "requestId": "s"}
    refused = client.ask("watch_error", type="stop_watch", watchId=ids[0])
    assert refused["code"] == "watch_not_found"
    start(client, tree)
    assert len(client.ask("watch_stopped", type="stop_watch")["watchIds"]) == 8
    (tree / "x").touch()
    assert client.ask("terminal_list", action="terminal_list")["terminals"] == []
    assert [each for each in client.messages if each["type"] in EVENTS] == []


def test_watches_of_a_connection_that_the_guest_has_not_noticed_to_be_lost_are_waited_for(box: Box, tree: Path) -> None:
    async def take_all() -> HoldClient:
        lost = box.hold.client()
        for _ in range(8):
            await lost.watch_folder(str(tree))
        return lost

    client = box.connect()
    with asyncio.Runner() as loop:
        lost = loop.run(take_all())
        client.send(type="watch", path=str(tree), requestId="w")
        assert client.ask("terminal_list", action="terminal_list")["terminals"] == []
        loop.run(lost.close())
        assert client.expect("watch_started")["requestId"] == "w"


def test_watches_end_with_their_socket(box: Box, tree: Path) -> None:
    stays, leaves = box.connect(), box.connect()
    for _ in range(8):
        start(leaves, tree)
    leaves.socket.close()
    until = time.monotonic() + 60
    while time.monotonic() < until:
        stays.send(type="watch", path=str(tree))
        stays.receive()
        if any(each["type"] == "watch_started" for each in stays.messages):
            return
        time.sleep(0.2)
    raise AssertionError("the watches are there")


def test_what_cannot_be_watched_is_an_error_and_the_end_of_a_folder_another(box: Box, tree: Path) -> None:
    client = box.connect()
    refused = client.ask("watch_error", type="watch", path=str(tree / "none"), requestId="x")
    assert (refused["code"], refused["requestId"]) == ("path_invalid", "x")
    assert "watchId" not in refused
    id = start(client, tree)
    tree.rmdir()
    ended = client.expect("watch_error")
    assert (ended["code"], ended["watchId"], ended["path"]) == ("watch_ended", id, str(tree))


def test_a_guest_process_that_is_killed_is_an_overflow_and_it_goes_on(box: Box, tree: Path) -> None:
    client = box.connect()
    start(client, tree)
    box.hold.process.send_signal(signal.SIGKILL)
    event = next_event(client)
    assert (event["type"], event["reason"], event["path"]) == ("watch_overflow", "reconnected", str(tree))
    (tree / "after").touch()
    assert next_event(client)["path"] == f"{tree}/after"


def test_after_a_kill_of_the_platform_all_watches_can_be_begun_again(box: Box, tree: Path) -> None:
    client = box.connect()
    for _ in range(8):
        start(client, tree)
    box.streams.kill()
    box.streams.start()
    again = box.connect()
    for _ in range(8):
        start(again, tree)


def test_a_client_that_never_reads_costs_little_and_gets_an_overflow(box: Box, tree: Path) -> None:
    stuck, other = box.connect(), box.connect()
    start(stuck, tree)
    before = box.streams.memory()
    name = "x" * 200
    for number in range(100_000):
        os.mknod(tree / f"{number}-{name}")
    id = other.ask("terminal_created", action="terminal_create", command="echo here")["terminalId"]
    other.read_until(id, b"here")
    assert box.streams.memory() - before < 4 * MIB
    seen = set()
    while (event := next_event(stuck))["type"] != "watch_overflow":
        seen.add(event["path"])
    assert event["reason"] in ("slow_reader", "queue_overflow")
    changes_arrive_again(stuck, tree)


def changes_arrive_again(client: WebSocketClient, tree: Path) -> None:
    """A change is reported, or else another overflow, after which a later one is."""
    number = 0
    (tree / "after-0").touch()
    while (event := next_event(client))["path"] != f"{tree}/after-{number}":
        if event["type"] == "watch_overflow":
            number += 1
            (tree / f"after-{number}").touch()


def test_output_has_its_turn_while_a_folder_changes(box: Box, tree: Path) -> None:
    client = box.connect()
    start(client, tree)
    change = f"while :; do touch {tree}/a; rm {tree}/a; done"
    client.ask("terminal_created", action="terminal_create", command=change)
    id = client.ask("terminal_created", action="terminal_create", command="cat")["terminalId"]
    next_event(client)
    client.send(a="i", id=id, d="echo\r")
    client.read_until(id, b"echo\r\necho\r\n")


def test_a_client_that_asks_and_does_not_read_waits(box: Box, tree: Path) -> None:
    client = box.connect()
    before = box.streams.memory()
    for number in range(2000):
        client.send(type="watch", path=f"{tree}/none", requestId=number)
    assert client.ask("terminal_list", action="terminal_list")["terminals"] == []
    assert box.streams.memory() - before < 16 * MIB
