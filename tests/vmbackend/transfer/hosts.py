"""Two hosts on this machine: one offers folders, the other one fetches them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncssh

from vmbackend.transfer.client import TransferSource, fetch_folder
from vmbackend.transfer.server import TransferServer

HERE = "127.0.0.1"
OFFER = "op_1"
MIB = 1 << 20
PLENTY = 64 * MIB


def new_key(path: Path) -> str:
    """Write a private key; return its public line."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    path.write_bytes(key.export_private_key())
    path.chmod(0o600)
    return " ".join(key.export_public_key().decode().split()[:2])


class Hosts:
    """The source's server and folder, the target's folder, and the keys of both."""

    def __init__(self, folder: Path) -> None:
        self.source_key, self.target_key = folder / "source_key", folder / "target_key"
        self.source_line, self.target_line = new_key(self.source_key), new_key(self.target_key)
        self.server = TransferServer(HERE, 0, self.source_key)
        self.sent, self.into = folder / "sent", folder / "into"
        self.sent.mkdir(mode=0o700)

    @property
    def source(self) -> TransferSource:
        return TransferSource(HERE, self.server.port, self.source_line)

    def offer(self, offer_id: str = OFFER, **options: Any) -> None:
        self.server.offer(offer_id, self.sent, self.target_line, **options)

    def fetch(self, offer_id: str = OFFER, **changed: Any) -> None:
        """Fetch as the target does, but for what is changed."""
        options = {"deadline": time.monotonic() + 300, "max_bytes": PLENTY} | changed
        source, key = options.pop("source", self.source), options.pop("key", self.target_key)
        fetch_folder(source, key, offer_id, options.pop("into", self.into), **options)

    def log_in(self, offer_id: str = OFFER, **options: Any) -> Any:
        """Return the coroutine of a connection with asyncssh's own client, logged in as the target."""
        given = {"client_keys": [str(self.target_key)], "known_hosts": None, "config": None, "agent_path": None}
        return asyncssh.connect(HERE, self.server.port, username=offer_id, **(given | options))


@contextmanager
def running_hosts(folder: Path) -> Iterator[Hosts]:
    hosts = Hosts(folder)
    hosts.server.start()
    until(lambda: hosts.server.port > 0)
    try:
        yield hosts
    finally:
        hosts.server.stop()


def random_file(path: Path, size: int) -> bytes:
    content = os.urandom(size)
    path.write_bytes(content)
    return content


def sparse_file(path: Path, length: int) -> None:
    """Write a file with some bytes at its begin and its end, and nothing between."""
    with path.open("wb") as file:
        file.write(b"begin" * 1000)
        file.seek(length - 5000)
        file.write(b"end!!" * 1000)


def children(word: bytes = b"rsync") -> set[int]:
    """Return the pids with this in their command that this process has started, at whatever depth."""
    parents: dict[int, int] = {}
    names: dict[int, bytes] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                names[int(entry.name)] = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    return {pid for pid in parents if word in names[pid] and os.getpid() in _ancestors(pid, parents)}


def _ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    found = []
    while pid := parents.get(pid, 0):
        found.append(pid)
    return found


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def command_lines() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return found
