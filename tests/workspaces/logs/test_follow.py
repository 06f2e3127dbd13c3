"""Following a log: every line once, through rotation, clearing, floods, and a follower that dies."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.logs.log_folder import Folder, begun, everything, polled, texts
from workspaces.logs import follow
from workspaces.logs.follow import Follower, initial_position
from workspaces.logs.lines import MAX_LINE, LogFormat
from workspaces.logs.position import MARK_BYTES, LogPosition


@pytest.fixture
def log(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_lines_come_once_they_are_whole(log: Folder) -> None:
    follower, before = begun(log)
    assert (before, polled(follower)) == ([], None)
    log.write(b"one\ntw")
    assert everything(follower) == ([b"one"], 0)
    log.write(b"o\r\n\nthree\n")
    assert everything(follower) == ([b"two", b"three"], 0)
    assert polled(follower) is None


def test_a_line_without_an_end_comes_when_nothing_follows(log: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    follower, _ = begun(log)
    log.write(b"Password: ")
    assert polled(follower) is None
    monkeypatch.setattr(follow, "PARTIAL_SECONDS", 0.0)
    assert everything(follower) == ([b"Password: "], 0)
    log.write(b"ok\n")
    assert everything(follower) == ([b"ok"], 0)


def test_a_quiet_log_is_not_read(log: Folder) -> None:
    log.write(b"x\n")
    follower, _ = begun(log)
    polled(follower)
    reads = log.reads
    assert [polled(follower) for _ in range(5)] == [None] * 5
    assert log.reads == reads


def test_a_log_that_was_there_begins_with_its_newest_lines(log: Folder) -> None:
    for number in range(3000):
        log.write(b"line %d\n" % number)
    log.write(b"part")
    follower, before = begun(log)
    assert before == [b"line %d" % number for number in range(2000, 3000)]
    log.write(b" and rest\n")
    assert everything(follower) == ([b"part and rest"], 0)


def test_the_beginning_reaches_into_older_files(log: Folder) -> None:
    for name in (b"a", b"b", b"c"):
        log.write(name + b"1\n" + name + b"2\n")
        log.rotate()
    log.write(b"d1\n")
    _, before = begun(log)
    assert before == [b"a1", b"a2", b"b1", b"b2", b"c1", b"c2", b"d1"]


@pytest.mark.parametrize("times", [1, 2])
def test_rotation_loses_and_doubles_nothing(log: Folder, times: int) -> None:
    log.write(b"zero\n")
    follower, _ = begun(log)
    sent: list[bytes] = []
    got: list[bytes] = []
    for number in range(200):
        line = b"n %d" % number
        log.write(line + b"\n")
        sent.append(line)
        if number % 7 == 0:
            got += everything(follower)[0]
        if number % 10 == 3:
            log.rotate()
    got += everything(follower)[0]
    assert got == sent


def test_a_rest_in_the_older_file_comes_before_the_new_one(log: Folder) -> None:
    log.write(b"seen\n")
    follower, _ = begun(log)
    log.write(b"rest\n")
    log.rotate()
    log.write(b"new\n")
    assert everything(follower) == ([b"rest", b"new"], 0)


@pytest.mark.parametrize("size", [1, 700])
def test_files_that_were_rotated_unseen_are_read_in_their_order(log: Folder, size: int) -> None:
    log.write(b"seen\n")
    follower, _ = begun(log)
    sent: list[bytes] = []
    for name in (b"rest", b"older", b"old", b"new"):
        lines = [b"%s %d" % (name, number) for number in range(size)]
        log.write(b"".join(line + b"\n" for line in lines))
        sent += lines
        if name != b"new":
            log.rotate()
    assert everything(follower) == (sent, 0)


def test_a_log_that_was_rotated_out_of_sight_is_a_gap(log: Folder) -> None:
    log.write(b"seen\n")
    follower, _ = begun(log)
    for number in range(5):
        log.write(b"file %d\n" % number)
        log.rotate()
    log.write(b"new\n")
    assert everything(follower) == ([b"new"], 1)


def test_a_line_that_is_split_over_two_files_comes_in_two(log: Folder) -> None:
    log.write(b"seen\n")
    follower, _ = begun(log)
    log.write(b"first ha")
    log.rotate()
    log.write(b"lf\nnew\n")
    assert everything(follower) == ([b"first ha", b"lf", b"new"], 0)


def test_a_character_is_never_cut(log: Folder) -> None:
    follower, _ = begun(log)
    text = "x" + "\u20ac\U0001f600é" * 20_000
    log.write(text.encode())
    lines, _ = everything(follower)
    log.write(b"\n")
    lines += everything(follower)[0]
    assert "".join(line.decode() for line in lines) == text
    assert max(len(line) for line in lines) <= MAX_LINE


FORGED = b"1999-01-01T00:00:00.000Z "
TRUE = "2026-01-31T12:00:00.000Z"


def test_the_rest_of_a_console_line_is_never_parsed_for_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PARTIAL_SECONDS", 0.0)
    log = Folder(tmp_path, log_format=LogFormat.CONSOLE)
    follower, _ = begun(log)
    for part in (TRUE.encode() + b" login: ", FORGED + b"root\n"):
        log.write(part)
        changes = polled(follower)
        assert changes is not None
        found = [(line.time, line.text) for line in changes.lines]
    assert found == [(None, FORGED + b"root")]


def test_a_console_line_that_is_seen_from_its_middle_has_no_time(tmp_path: Path) -> None:
    log = Folder(tmp_path, log_format=LogFormat.CONSOLE)
    log.write(b"z" * 1000 + (FORGED + b"x") * 10_000)
    changes = asyncio.run(initial_position(log))
    follower = Follower(log, changes.position)
    log.write((FORGED + b"y") * 100_000)
    found = asyncio.run(follower.poll())
    assert found is not None
    assert {line.time for line in found.lines} == {None}


def test_a_log_that_is_replaced_is_a_gap_and_read_from_its_beginning(log: Folder) -> None:
    log.write(b"a long first line of the old log\n")
    follower, _ = begun(log)
    log.path.write_bytes(b"fresh\n")
    assert everything(follower) == ([b"fresh"], 1)


def test_a_log_that_is_removed_waits_for_the_next(log: Folder) -> None:
    log.write(b"old\n")
    follower, _ = begun(log)
    log.path.unlink()
    assert polled(follower) is None
    log.write(b"new one\n")
    lines, _ = everything(follower)
    assert lines == [b"new one"]


def test_another_follower_continues_from_the_position_of_the_first(log: Folder) -> None:
    log.write(b"one\n")
    follower, _ = begun(log)
    log.write(b"two\n")
    changes = asyncio.run(follower.poll())  # found, and the process died before it was published
    assert changes is not None
    text = str(follower._position)
    log.rotate()
    log.write(b"three\n")
    assert everything(Follower(log, LogPosition.parse(text))) == ([b"two", b"three"], 0)


def test_a_flood_is_a_gap_and_no_more_than_some_lines_at_a_look(log: Folder) -> None:
    follower, _ = begun(log)
    for _ in range(40):
        log.write(b"x" * 79 + b"\n")
    for _ in range(40):
        log.write((b"y" * 99 + b"\n") * 1000)
    changes = polled(follower)
    assert changes is not None
    assert changes.gap
    assert len(changes.lines) <= follow.STEP_LINES
    log.write(b"end\n")
    lines, _ = everything(follower)
    assert lines[-1] == b"end"
    assert log.largest <= follow.MAX_BEHIND + MARK_BYTES + 1


def test_many_short_lines_come_in_steps(log: Folder) -> None:
    follower, _ = begun(log)
    log.write(b"".join(b"%d\n" % number for number in range(5000)))
    changes = polled(follower)
    assert changes is not None
    assert len(changes.lines) == follow.STEP_LINES
    lines, gaps = everything(follower)
    assert (texts(changes) + lines, gaps) == ([b"%d" % number for number in range(5000)], 0)


def test_a_log_without_a_line_end_advances(log: Folder) -> None:
    follower, _ = begun(log)
    log.write(b"z" * 300_000)
    lines, gaps = everything(follower)
    assert gaps == 0
    assert max(len(line) for line in lines) <= MAX_LINE
    assert len(b"".join(lines)) >= 2 * follow.STEP_BYTES


def test_of_a_flood_of_lines_only_those_that_count_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    split_lines = follow.split_lines

    def counted(data: bytes, *arguments: Any, **options: Any) -> Any:
        parsed.append(data.count(b"\n"))
        return split_lines(data, *arguments, **options)

    monkeypatch.setattr(follow, "split_lines", counted)
    log = Folder(tmp_path, log_format=LogFormat.RECORDS)
    log.write(b"x\n" * follow.SEED_BYTES)
    found = asyncio.run(initial_position(log))
    assert [line.text for line in found.lines] == [b"x"] * follow.SEED_LINES
    log.write(b"\n" * (follow.MAX_BEHIND + 1))
    changes = polled(Follower(log, found.position))
    assert changes is not None
    assert (changes.gap, changes.lines) == (True, [])
    assert max(parsed) <= follow.SEED_LINES
