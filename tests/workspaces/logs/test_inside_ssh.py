"""Logs inside a guest over its real channel, SSH and SFTP, and the kinds of files that a hostile guest has there."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.vmbackend.local_dropbear import LocalGuest
from tests.vmbackend.test_guest_session import helper, local, ssh_pool
from vmbackend.guest.pool import GuestPool
from workspaces.logs import guest_logs
from workspaces.logs.follow import Follower, initial_position
from workspaces.logs.lines import LogFormat, log_entries
from workspaces.logs.sources import LogSource
from workspaces.streams import sources
from workspaces.streams.sources import GuestFiles

__all__ = ["helper", "local"]
pytestmark = pytest.mark.host


class Guest:
    """Its folder of logs, and what is asked of it."""

    def __init__(self, local: LocalGuest, pool: GuestPool) -> None:
        self.folder = local.root
        self.address = local.address
        self.pool = pool

    def source(self, name: str) -> LogSource:
        return LogSource(name, f"{self.folder}/{name}.log")

    def tail(self, name: str, lines: int) -> list[str]:
        path = f"{self.folder}/{name}.log"
        data = self.pool.call(self.address, lambda session: guest_logs.read_tail(session, path, lines), 60)
        return [entry["line"] for entry in log_entries(data, name, LogFormat.PLAIN, last=lines)]

    def names(self, *names: str) -> dict[str, int]:
        known = [self.source(name) for name in names]
        files = self.pool.call(self.address, lambda session: guest_logs.log_files(session, known), 60)
        return {file.name: file.size for file in files}

    def clear(self, *names: str) -> None:
        known = [self.source(name) for name in names]
        self.pool.call(self.address, lambda session: guest_logs.clear_logs(session, known), 60)


@pytest.fixture
def guest(local: LocalGuest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guest]:
    pool = ssh_pool(local)
    monkeypatch.setattr(guest_logs, "FOLDER", str(local.root))
    monkeypatch.setattr(sources, "guest_pool", lambda: pool)
    yield Guest(local, pool)
    pool.close()


def test_the_end_of_a_gibibyte_comes_in_constant_memory(guest: Guest) -> None:
    path = guest.folder / "cmd.log"
    path.touch()
    os.truncate(path, 1 << 30)
    with path.open("ab") as log:
        log.write(b"\n" + b"".join(b"line %d\n" % number for number in range(30_000)))
    guest.tail("cmd", 1)
    tracemalloc.start()
    try:
        assert guest.tail("cmd", 3) == ["line 29997", "line 29998", "line 29999"]
        assert len(guest.tail("cmd", 10_000)) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()


def test_older_files_are_read_where_the_newest_has_too_few_lines(guest: Guest) -> None:
    for name, text in (("cmd.log", "three\n"), ("cmd.log.1", "two\n"), ("cmd.log.3", "never reached\n")):
        (guest.folder / name).write_text(text)
    (guest.folder / "cmd.log.2").write_text("one\n")
    assert guest.tail("cmd", 3) == ["one", "two", "three"]
    assert guest.tail("absent", 3) == []


def test_devices_links_folders_and_odd_names_are_no_logs(guest: Guest) -> None:
    folder = guest.folder
    (folder / "zero.log").symlink_to("/dev/zero")
    (folder / "loop.log").symlink_to("loop.log")
    (folder / "out.log").symlink_to("../../../../../../../../../../etc")
    (folder / "folder.log").mkdir()
    os.mkfifo(folder / "fifo.log")
    for name in (b"\xff.log", b"a\nb.log", b" .log", b"-x", b"good.log"):
        (folder / os.fsdecode(name)).write_bytes(b"text\n")
    odd = ["zero", "loop", "out", "folder", "fifo"]
    assert guest.names(*odd) == {"good.log": 5}
    assert [guest.tail(name, 10) for name in odd] == [[]] * 5
    guest.clear(*odd)
    assert guest.names(*odd) == {"good.log": 0}
    assert (folder / os.fsdecode(b"\xff.log")).read_bytes() == b"text\n"


def test_a_clear_leaves_mode_and_owner(guest: Guest) -> None:
    path = guest.folder / "cmd.log"
    path.write_text("secret\n")
    path.chmod(0o640)
    os.chown(path, 4321, 4321)
    guest.clear("cmd")
    found = path.stat()
    assert (found.st_size, found.st_mode & 0o777, found.st_uid, found.st_gid) == (0, 0o640, 4321, 4321)


class Logger(threading.Thread):
    """Writes numbered lines and rotates, as the kit's logger does, a little faster than it is looked at."""

    def __init__(self, path: Path, count: int) -> None:
        super().__init__()
        self._path = path
        self._count = count

    def run(self) -> None:
        for number in range(self._count):
            with self._path.open("ab") as log:
                log.write(b"%d %s\n" % (number, b"x" * 200))
            if self._path.stat().st_size > 20_000:
                for age in (3, 2, 1):
                    older = self._path.with_name(f"{self._path.name}.{age - 1}") if age > 1 else self._path
                    if older.exists():
                        older.replace(self._path.with_name(f"{self._path.name}.{age}"))
            time.sleep(0.002)


def test_a_log_is_followed_while_it_is_written_and_rotated(guest: Guest) -> None:
    path = guest.folder / "cmd.log"
    path.touch()
    logger = Logger(path, 1500)

    async def follow() -> list[int]:
        files = GuestFiles(guest.address, guest.source("cmd"))
        follower = Follower(files, (await initial_position(files)).position)
        logger.start()
        got: list[int] = []
        until = time.monotonic() + 60
        while (not got or got[-1] < 1499) and time.monotonic() < until:
            changes = await follower.poll()
            if changes is None:
                await asyncio.sleep(0.01)
                continue
            assert not changes.gap
            got += [int(line.text.split(b" ", 1)[0]) for line in changes.lines]
            follower.accept(changes)
        return got

    got = asyncio.run(follow())
    logger.join()
    assert got == list(range(1500))
