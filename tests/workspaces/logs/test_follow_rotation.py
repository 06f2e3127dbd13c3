"""A log that is rotated while nothing follows it, or between any two reads: every line once, or a gap."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.workspaces.logs.log_folder import Folder, begun, everything, polled
from workspaces.logs.follow import RECHECK_SECONDS, Follower
from workspaces.logs.lines import LogFormat
from workspaces.logs.position import LogPosition


@pytest.fixture
def log(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def record(number: int) -> bytes:
    """A record of the guest's logger. All have one length, and the same last thousand bytes."""
    return b"2026-01-31T12:00:00.%09dZ stdout F %04d %s\n" % (number, number, b"x" * 1000)


def numbers(lines: list[bytes]) -> list[int]:
    return [int(line.split(b" ", 1)[0]) for line in lines]


def resumed(log: Folder, follower: Follower) -> Follower:
    """A follower in another process."""
    return Follower(log, LogPosition.parse(str(follower._position)))


@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_a_file_with_lines_of_the_same_length_is_not_taken_for_the_one_before(tmp_path: Path, rotations: int) -> None:
    log = Folder(tmp_path, log_format=LogFormat.RECORDS)
    log.write(b"".join(map(record, range(50))))
    follower, _ = begun(log)
    count = 50
    for _ in range(rotations):
        log.rotate()
        log.write(b"".join(map(record, range(count, count + 100))))
        count += 100
    lines, gaps = everything(resumed(log, follower))
    assert (numbers(lines), gaps) == (list(range(50, count)), 0)


def test_a_file_that_was_cut_and_has_grown_again_is_a_gap(tmp_path: Path) -> None:
    """As after a power failure."""
    log = Folder(tmp_path, log_format=LogFormat.RECORDS)
    log.write(b"".join(map(record, range(50))))
    follower, _ = begun(log)
    log.path.write_bytes(b"".join(map(record, [*range(30), *range(60, 90)])))
    lines, gaps = everything(resumed(log, follower))
    assert (numbers(lines)[-30:], gaps) == (list(range(60, 90)), 1)


@pytest.mark.parametrize("rotated", [False, True])
def test_a_file_that_was_replaced_by_one_of_the_same_size_is_read_after_a_while(
    log: Folder, monkeypatch: pytest.MonkeyPatch, rotated: bool
) -> None:
    log.write(b"one\n")
    follower, _ = begun(log)
    assert polled(follower) is None
    if rotated:
        log.rotate()
    log.path.write_bytes(b"two\n")
    assert polled(follower) is None, "a file of an unchanged size is not read at each poll"
    later = time.monotonic() + RECHECK_SECONDS
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert everything(follower) == ([b"two"], 0 if rotated else 1)


def test_a_log_that_was_empty_is_read_from_its_oldest_file(log: Folder) -> None:
    follower, _ = begun(log)
    for name in (b"one", b"two"):
        log.write(name + b"\n")
        log.rotate()
    log.write(b"three\n")
    assert everything(resumed(log, follower)) == ([b"one", b"two", b"three"], 0)


def test_a_log_that_was_empty_and_lost_a_file_is_a_gap(log: Folder) -> None:
    follower, _ = begun(log)
    for number in range(5):
        log.write(b"file %d\n" % number)
        log.rotate()
    log.write(b"new\n")
    assert everything(resumed(log, follower)) == ([b"file 2", b"file 3", b"file 4", b"new"], 1)


@pytest.mark.parametrize("seeded", [True, False])
def test_a_file_that_was_begun_and_rotated_unseen_is_read(log: Folder, seeded: bool) -> None:
    """The position is at the end of an older file, behind which an empty one was seen."""
    log.write(b"seen\n")
    follower, _ = begun(log)
    log.rotate()
    log.write(b"")
    if seeded:
        follower, _ = begun(log)
    assert everything(follower) == ([], 0)
    log.write(b"one\n")
    log.rotate()
    log.write(b"two\n" * 3)
    assert everything(resumed(log, follower)) == ([b"one", b"two", b"two", b"two"], 0)


def test_a_line_begun_in_a_new_file_does_not_bring_the_older_ones_again(log: Folder) -> None:
    log.write(b"old\n")
    log.rotate()
    log.write(b"par")
    follower, before = begun(log)
    assert before == [b"old"]
    log.write(b"t\n")
    assert everything(resumed(log, follower)) == ([b"part"], 0)


def test_an_older_file_that_was_removed_is_a_gap(log: Folder) -> None:
    log.write(b"seen\n")
    follower, _ = begun(log)
    for name in (b"one", b"two", b"three"):
        log.rotate()
        log.write(name + b"\n")
    log.at(1).unlink()
    assert patiently(follower, b"three") == ([b"one", b"three"], 1)


class Rotating(Folder):
    """Takes one step of a rotation before each request from `begin_at` on: renames each file, then writes a line."""

    def __init__(self, folder: Path, begin_at: int) -> None:
        super().__init__(folder)
        self._requests = -begin_at
        self.last = b"afterwards"

    def _step(self) -> None:
        self._requests += 1
        age = self.oldest - self._requests
        if 0 <= age < self.oldest and self.at(age).exists():
            self.at(age).replace(self.at(age + 1))
        if age == -1:
            self.write(self.last + b"\n")

    async def size(self, age: int) -> int | None:
        self._step()
        return await super().size(age)

    async def read(self, age: int, offset: int, length: int) -> bytes:
        self._step()
        return await super().read(age, offset, length)


def patiently(follower: Follower, last: bytes) -> tuple[list[bytes], int]:
    """Polls until the last line has come."""
    lines: list[bytes] = []
    gaps = 0
    for _ in range(50):
        changes = polled(follower)
        if changes is not None:
            lines += [line.text for line in changes.lines]
            gaps += changes.gap
        if lines[-1:] == [last]:
            break
    return lines, gaps


@pytest.mark.parametrize("unread", [0, 1, 2])
@pytest.mark.parametrize("begin_at", range(24))
def test_a_rotation_between_any_two_reads_loses_and_doubles_nothing(tmp_path: Path, begin_at: int, unread: int) -> None:
    log = Rotating(tmp_path, begin_at + 10**6)
    log.write(b"seen\n")
    follower, _ = begun(log)
    log._requests = -begin_at
    expected = [b"rest"]
    log.write(b"rest\n")
    for number in range(unread):
        log.rotate()
        log.write(b"file %d\n" % number)
        expected.append(b"file %d" % number)
    assert patiently(follower, log.last) == ([*expected, log.last], 0)


@pytest.mark.parametrize("begin_at", range(16))
def test_a_rotation_while_a_log_is_first_read_loses_and_doubles_nothing(tmp_path: Path, begin_at: int) -> None:
    log = Rotating(tmp_path, begin_at)
    for name in (b"one\n", b"two\n"):
        log.write(name)
        log.rotate()
    log.write(b"three\n")
    follower, before = begun(log)
    lines, gaps = patiently(follower, log.last) if before[-1:] != [log.last] else ([], 0)
    assert (before + lines, gaps) == ([b"one", b"two", b"three", log.last], 0)


@pytest.mark.parametrize("begin_at", range(16))
def test_a_rotation_while_an_empty_log_is_first_polled_loses_nothing(tmp_path: Path, begin_at: int) -> None:
    log = Rotating(tmp_path, 10**6)
    follower, _ = begun(log)
    log._requests = -begin_at
    for name in (b"one\n", b"two\n"):
        log.write(name)
        log.rotate()
    log.write(b"three\n")
    assert patiently(follower, log.last)[0] == [b"one", b"two", b"three", log.last]


def test_a_position_of_an_earlier_version_is_a_gap(log: Folder) -> None:
    log.write(b"one\n")
    follower = Follower(log, LogPosition.parse(f"4:{b'one'.hex()}0a"))
    assert everything(follower) == ([b"one"], 1)
    assert asyncio.run(follower.poll()) is None
