"""Clients of two processes that lose their sockets at random have the same screens and trees as the guest."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes.sockets.client import Closed, WebSocketClient
from tests.sandboxes.sockets.conftest import Box, Streams
from tests.sandboxes.sockets.test_runtime_socket import Runtime

TERMINALS, WATCHERS, CLIENTS = 20, 8, 3
LINES_PER_SECOND = 100  # of which the guest keeps all


class Mirror:
    """A client that follows everything, and comes back where it was after each loss of its socket."""

    def __init__(self, runtime: OrderedRuntime, processes: list[Streams], seed: int) -> None:
        self.runtime, self.processes, self.random = runtime, processes, random.Random(seed)
        self.screens: dict[int, bytearray] = {}
        self.trees: dict[str, set[str]] = {}
        self.roots: dict[str, str] = {}
        self.exits: dict[int, int] = {}
        self.cuts = 0

    def follow(self, seconds: float, *, until_over: bool) -> None:
        """Follow with one socket for some time, or until all programs have ended and nothing more comes."""
        client = self.runtime.follow(self.random.choice(self.processes))
        client.socket.settimeout(0.5 if not until_over else 5)
        places: dict[int, int] = {}
        until = time.monotonic() + seconds
        with suppress(TimeoutError, Closed):
            while time.monotonic() < until:
                client.receive()
                self._take(client, places)
        client.socket.close()
        self.cuts += 1

    def _take(self, client: OrderedClient, places: dict[int, int]) -> None:
        """Frames and output in the order in which they came: output that follows a state is at its offset."""
        for kind, found in client.order:
            if kind == "output":
                self._append(found[0], found[1:], places)
            elif found["channel"] == "watcher":
                self._change(found)
            elif found["type"] == "state":
                id = int(found["id"])
                places[id] = found["offset"]
                if found["offset"] > len(self.screens.setdefault(id, bytearray())):
                    client.send(channel="terminal", type="attach", id=str(id), offset=len(self.screens[id]))
            elif found["type"] == "exit":
                self.exits[int(found["id"])] = found["code"]
            else:
                raise AssertionError(found)
        client.order.clear()

    def _append(self, id: int, data: bytes, places: dict[int, int]) -> None:
        screen, at = self.screens[id], places[id]
        places[id] = at + len(data)
        if at <= len(screen) < at + len(data):
            screen += data[len(screen) - at :]

    def _change(self, found: dict[str, Any]) -> None:
        id = found["watcher_id"]
        if found["type"] in ("ready", "overflow"):  # what was missed is read
            folder = found.get("root") or self.roots[id]
            self.roots[id] = folder
            self.trees[id] = tree_of(Path(folder))
        elif found["op"] in ("create", "write"):
            self.trees[id].add(found["path"])
            self.trees[id] |= tree_of(Path(found["path"]))
        elif found["op"] in ("remove", "rename"):
            gone = found["path"]
            self.trees[id] = {path for path in self.trees[id] if path != gone and not path.startswith(f"{gone}/")}


def tree_of(folder: Path) -> set[str]:
    found = set()
    with suppress(OSError):
        for path in folder.rglob("*"):
            found.add(str(path))
    return found


class OrderedClient(WebSocketClient):
    """Keeps frames and output in one order."""

    def __init__(self, *where: Any) -> None:
        self.order: list[tuple[str, Any]] = []
        super().__init__(*where)

    def _add_message(self, message: str | bytes) -> None:
        super()._add_message(message)
        if isinstance(message, bytes):
            self.order.append(("output", message))
        else:
            self.order.append(("frame", self.messages.pop()))


class OrderedRuntime(Runtime):
    def follow(self, streams: Streams) -> OrderedClient:
        client = OrderedClient(streams.socket, f"/r/ws?token={self.token}")
        self.box.opened.append(client)
        return client


def change_at_random(folders: list[Path], over: threading.Event, seed: int) -> None:
    """Make, write, rename and remove files and folders."""
    choose = random.Random(seed)
    while not over.is_set():
        folder = choose.choice(folders)
        below = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        place = choose.choice(below) / f"n{choose.randrange(20)}"
        with suppress(OSError):
            act = choose.randrange(4)
            if act == 0:
                place.mkdir()
            elif act == 1:
                place.write_text("x")
            elif act == 2:
                place.rename(choose.choice(below) / f"m{choose.randrange(20)}")
            else:
                place.rmdir() if place.is_dir() else place.unlink()
        time.sleep(0.01)


@pytest.mark.parametrize("seconds", [10, pytest.param(120, marks=pytest.mark.campaign)])
def test_cut_at_random_what_clients_rebuild_is_what_the_guest_has(box: Box, tmp_path: Path, seconds: int) -> None:
    runtime = OrderedRuntime(box)
    processes = [box.streams, box.another_process()]
    lines = LINES_PER_SECOND * seconds
    script = f"stty -opost; i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo {{}} $i; sleep 0.01; done"
    terminals = {runtime.terminal(script.format(place)): place for place in range(TERMINALS)}
    folders = [tmp_path / f"tree{place}" for place in range(WATCHERS)]
    for folder in folders:
        folder.mkdir()
    watchers = {str(runtime.watcher(folder)): folder for folder in folders}
    mirrors = [Mirror(runtime, processes, seed) for seed in range(CLIENTS)]
    over = threading.Event()
    threads = [threading.Thread(target=change_at_random, args=(folders, over, 7))]
    threads += [threading.Thread(target=follow_until, args=(mirror, over)) for mirror in mirrors]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join(120)
    for mirror in mirrors:
        wait_for_lines(mirror, terminals)
        assert mirror.cuts > 3
        for id, place in terminals.items():
            expected = "".join(f"{place} {line}\n" for line in range(1, lines + 1)).encode()
            assert bytes(mirror.screens[id]) == expected
        for watcher, folder in watchers.items():
            assert mirror.trees[watcher] == tree_of(folder)


def follow_until(mirror: Mirror, over: threading.Event) -> None:
    while not over.is_set():
        mirror.follow(mirror.random.uniform(0.2, 3), until_over=False)


def wait_for_lines(mirror: Mirror, terminals: dict[int, int]) -> None:
    """Follow until each terminal's program has ended."""
    until = time.monotonic() + 300
    while mirror.exits.keys() != terminals.keys():
        assert time.monotonic() < until
        mirror.follow(10, until_over=True)
