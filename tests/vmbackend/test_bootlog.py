"""The console log on the host: bounded, with a timestamp on every line, readable at any time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from vmbackend.bootlog import begin_boot_log, clear_boot_log, rotated_path, split_timestamp, timestamp_prefix
from vmbackend.libvirt.bootlog import BootLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "boot.log"


def read_log(path: Path) -> bytes:
    """The content of both files, the older first."""
    return b"".join(file.read_bytes() for file in (rotated_path(path), path) if file.exists())


def read_lines(path: Path) -> list[bytes]:
    return [split_timestamp(line)[1] for line in read_log(path).split(b"\n")]


def test_split_timestamp_removes_one_timestamp() -> None:
    moment = datetime(2026, 1, 31, 13, 0, 0, 7999, tzinfo=timezone(timedelta(hours=1)))
    assert timestamp_prefix(moment) == b"2026-01-31T12:00:00.007Z "
    assert split_timestamp(timestamp_prefix(moment) * 2 + b"x") == (
        "2026-01-31T12:00:00.007Z",
        timestamp_prefix(moment) + b"x",
    )
    assert split_timestamp(b"2026-01-31 plain") == (None, b"2026-01-31 plain")


def test_every_line_has_the_time_at_which_its_first_byte_was_read(path: Path) -> None:
    log = BootLog(path, 1 << 20)
    before = timestamp_prefix()
    for data in (b"one\ntw", b"o", b"\n\n", b"three"):
        log.append(data)
    BootLog(path, 1 << 20).append(b" and a half\nfour\n")  # a later process
    whole = read_log(path)
    assert whole.endswith(b"four\n")
    assert read_lines(path) == [b"one", b"two", b"", b"three and a half", b"four", b""]
    timestamps = [split_timestamp(line)[0] for line in whole.splitlines()]
    assert all(found is not None and before <= found.encode() + b" " <= timestamp_prefix() for found in timestamps)
    assert datetime.fromisoformat(timestamps[0] or "").tzinfo == UTC


def test_timestamps_written_by_the_guest_are_content(path: Path) -> None:
    forged = b"1999-01-01T00:00:00.000Z "
    log = BootLog(path, 1 << 20)
    log.append(forged + b"a\n" + forged + b"b\n")
    log.append(forged)
    log.append(b"c\n")
    assert read_lines(path)[:3] == [forged + b"a", forged + b"b", forged + b"c"]
    assert b"1999" not in b"".join((split_timestamp(line)[0] or "").encode() for line in read_log(path).splitlines())


@pytest.mark.parametrize("flood", [b"x" * 150, b"x" * 5000, b"x" * 5000 + b"\n"])
def test_each_file_begins_with_a_timestamp_even_within_a_line(path: Path, flood: bytes) -> None:
    log = BootLog(path, 400)
    for _ in range(5):
        log.append(flood)
        for file in (rotated_path(path), path):
            assert not file.exists() or split_timestamp(file.read_bytes())[0]


def test_the_log_is_bounded_and_contains_the_newest_output(path: Path) -> None:
    log = BootLog(path, 2000)
    for number in range(500):
        log.append(f"line {number:04d}\n".encode())
        assert len(read_log(path)) <= 2000
    assert read_lines(path)[-2] == b"line 0499"
    remaining = [line for line in read_lines(path) if line]
    assert remaining == [f"line {number:04d}".encode() for number in range(500 - len(remaining), 500)]
    assert len(read_log(path)) > 1000


@pytest.mark.parametrize("data", [b"x" * 50_000, b"\n" * 50_000, b"ab\n" * 20_000, bytes(range(256)) * 200])
def test_a_flood_in_one_block_stays_within_the_limit(path: Path, data: bytes) -> None:
    log = BootLog(path, 2000)
    for _ in range(3):
        log.append(data)
        assert 0 < len(read_log(path)) <= 2000
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_cleared_log_starts_empty(path: Path) -> None:
    log = BootLog(path, 400)
    for _ in range(30):
        log.append(b"old old old\n")
    clear_boot_log(path)
    clear_boot_log(path)
    assert read_log(path) == b""
    log.append(b"new\n")
    assert read_lines(path) == [b"new", b""]


def test_rotation_does_not_change_an_open_file(path: Path) -> None:
    log = BootLog(path, 400)
    log.append(b"first\n")
    with path.open("rb") as opened:
        for _ in range(30):
            log.append(b"later later\n")
        assert split_timestamp(opened.readline())[1] == b"first\n"


def test_a_log_that_cannot_be_written_drops_the_output_and_raises_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    BootLog(path, 400).append(b"dropped\n")
    assert "boot.log" in caplog.text
    path.rmdir()
    BootLog(path, 400).append(b"written\n")
    assert read_lines(path) == [b"written", b""]


def test_the_first_lines_are_written_once_and_followed_by_the_console(path: Path) -> None:
    begin_boot_log(path, [])
    assert not path.exists()
    begin_boot_log(path, ["one", "\udcff"])
    begin_boot_log(path, ["of a later start"])
    BootLog(path, 1 << 20).append(b"console\n")
    assert read_lines(path) == [b"one", b"?", b"console", b""]
    assert path.stat().st_mode & 0o777 == 0o600
