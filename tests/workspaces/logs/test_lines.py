"""From the bytes of a log to entries: whatever a guest writes."""

from __future__ import annotations

from typing import Any

import pytest

from workspaces.logs.lines import MAX_LINE, Line, LogFormat, log_entries, log_entry, split_lines

FORGED = b"1999-01-01T00:00:00.000Z "
TRUE = "2026-01-31T12:00:00.000Z"


def test_the_time_of_a_long_console_line_is_that_of_all_its_pieces() -> None:
    line = TRUE.encode() + b" " + b"x" * MAX_LINE + FORGED + b"y" * MAX_LINE + b"\n"
    shown = log_entries(line, "boot", LogFormat.CONSOLE, last=9)
    assert [found["timestamp"] for found in shown] == [TRUE] * 3
    assert "".join(found["line"] for found in shown).encode() == b"x" * MAX_LINE + FORGED + b"y" * MAX_LINE


@pytest.mark.parametrize(
    "data",
    [bytes(range(256)) * 3, b"\xff\xfe\n\xc3", b"\xed\xa0\x80\n", b"\x1b[2J\x07\x00\n", "é\u2028\u0085".encode()],
)
def test_any_bytes_become_entries(data: bytes) -> None:
    for found in [*log_entries(data, "cmd", LogFormat.PLAIN, last=100), log_entry(Line(data), "cmd")]:
        assert found["line"] == found["message"]
        assert found["line"].encode().decode() == found["line"]


def test_entries_of_a_console_have_its_times_and_a_programs_none() -> None:
    console: Any = log_entries(
        b"2026-01-31T12:00:00.000Z up\n2026-01-31T12:00:00.000Z \ntail\n", "boot", LogFormat.CONSOLE, last=9
    )
    assert [(found["line"], found["timestamp"], found["stream"]) for found in console] == [
        ("up", "2026-01-31T12:00:00.000Z", "console"),
        ("tail", None, "console"),
    ]
    program, bare = log_entries(
        b"2026-01-31T12:00:00.000Z up\n2026-01-31T12:00:00.000Z \n", "web", LogFormat.PLAIN, last=9
    )
    assert bare["line"] == "2026-01-31T12:00:00.000Z "
    assert (program["line"], program["timestamp"], program["stream"], program["source"]) == (
        "2026-01-31T12:00:00.000Z up", None, "stdout", "web",
    )  # fmt: skip


def test_a_long_line_is_cut_between_characters() -> None:
    text = "x" + "\u20ac\U0001f600é" * 10_000
    found = log_entries(text.encode(), "cmd", LogFormat.PLAIN, last=1000)
    assert len(found) > 1
    assert "".join(one["line"] for one in found) == text


RECORD = b"2026-01-31T12:00:0%d.000000000Z %s %s %s\n"


def test_parts_of_a_line_are_one_line_with_the_time_of_the_first() -> None:
    data = b"".join(
        RECORD % part
        for part in [
            (1, b"stdout", b"P", b"one "),
            (2, b"stderr", b"P", b"bad "),
            (3, b"stdout", b"F", b"two"),
            (4, b"stderr", b"F", b"news"),
            (5, b"stdout", b"P", b"Name: "),
        ]
    )
    assert split_lines(data, LogFormat.RECORDS) == [
        Line(b"one two", "2026-01-31T12:00:01.000Z", "stdout"),
        Line(b"bad news", "2026-01-31T12:00:02.000Z", "stderr"),
        Line(b"Name: ", "2026-01-31T12:00:05.000Z", "stdout"),
    ]


def test_a_block_that_begins_inside_a_record_has_no_time_there() -> None:
    forged = RECORD % (9, b"stderr", b"F", b"forged")
    data = forged + RECORD % (1, b"stderr", b"F", b"true")
    assert split_lines(data, LogFormat.RECORDS, inside=True) == [
        Line(forged.rstrip(b"\n"), None, "stdout"),
        Line(b"true", "2026-01-31T12:00:01.000Z", "stderr"),
    ]


def test_very_many_parts_are_joined_in_linear_time() -> None:
    (line, *rest) = split_lines((RECORD % (1, b"stdout", b"P", b"")) * 20_000 + b"x" * 10, LogFormat.RECORDS)
    assert (line, rest) == (Line(b"x" * 10), [])
