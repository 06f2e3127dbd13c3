"""The modes of a terminal, and its output shown again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workspaces.data_plane.sockets.modes import TerminalModes, last_lines_start, terminal_state, without_queries

VIM = b"\x1b[?1049h\x1b[22;0;0t\x1b[?1h\x1b=\x1b[?2004h\x1b[?1004h\x1b[1;24r\x1b[?12h\x1b[?25l"


def after(*blocks: bytes) -> bytes:
    modes = TerminalModes()
    for block in blocks:
        modes.feed(block)
    return modes.restore()


def test_what_an_editor_sets_is_restored_and_what_it_took_back_is_not() -> None:
    assert after(VIM) == b"\x1b[?1049h\x1b[?1h\x1b[?12h\x1b[?25l\x1b[?1004h\x1b[?2004h\x1b=\x1b[1;24r"
    leave = b"\x1b[?1004l\x1b[?2004l\x1b[?1l\x1b>\x1b[?1049l\x1b[?25h\x1b[?12l\x1b[r"
    assert after(VIM, b"text", leave) == b""


@pytest.mark.parametrize(
    ("output", "restored"),
    [
        (b"\x1b[?1000;1002;1006h", b"\x1b[?1006h\x1b[?1002h"),
        (b"\x1b[?1000h\x1b[?1002h\x1b[?1002l", b""),
        (b"\x1b[?7l\x1b[4h\x1b(0\x1b[2 q", b"\x1b[?7l\x1b[4h\x1b(0\x1b[2 q"),
        (VIM + b"\x1bc", b""),
        (b"\x1b[?1h\x1b[4h\x1b[?2004h\x1b[!p", b"\x1b[?2004h"),
        (b"\x1b]0;\x1b[?1049h title\x07", b"\x1b[?1049h"),
        (b"\x1b]0;?1049h\x07\x1b[?99999999999h\x1b[?;;h\x1b[31mred", b""),
    ],
)
def test_modes(output: bytes, restored: bytes) -> None:
    assert after(output) == restored


@given(st.lists(st.sampled_from([VIM, b"x\n", b"\x1b[?1000h", b"\x1b]0;t\x07", b"\x1b[?1049l", b"\x1b[5n", b"\x1bc"])))
def test_where_blocks_are_cut_does_not_matter(blocks: list[bytes]) -> None:
    whole = b"".join(blocks)
    assert after(*(whole[at : at + 1] for at in range(len(whole)))) == after(whole)


@given(st.binary())
def test_any_output_can_be_followed(output: bytes) -> None:
    modes = TerminalModes()
    modes.feed(output)
    assert after(modes.restore()) == modes.restore()
    assert len(modes.pending) <= 256


def test_queries_are_left_out_and_all_else_stays() -> None:
    asked = [
        b"\x05", b"\x1b[5n", b"\x1b[6n", b"\x1b[?6n", b"\x1b[c", b"\x1b[0c", b"\x1b[>c", b"\x1b[=0c", b"\x1bZ",
        b"\x1b[?2004$p", b"\x1b[4$p", b"\x1b[>q", b"\x1b[>0q", b"\x1b]10;?\x07", b"\x1b]11;?\x1b\\",
        b"\x1b]4;1;?\x07", b"\x1b]52;c;?\x07", b"\x1bP$qm\x1b\\", b"\x1bP+q544e\x1b\\", b"\x1b[?u", b"\x1b[18t",
        b"\x1b[14;2t", b"\x1b[x",
    ]  # fmt: skip
    kept = [b"a", b"\x1b[31m", b"\x1b[2J", b"\x1b]0;title\x07", b"\x1b[22;0;0t", b"\x1b[?25l", b"\x1b[2 q", b"\x1b[3r"]
    mixed = b"".join(query + kept[at % len(kept)] for at, query in enumerate(asked))
    assert without_queries(mixed) == b"".join(kept[at % len(kept)] for at in range(len(asked)))


def test_the_last_lines_begin_at_a_line() -> None:
    text = b"one\r\ntwo\r\nthree\r\n$ "
    assert text[last_lines_start(text, 2, whole=True) :] == b"three\r\n$ "
    assert last_lines_start(text, 100, whole=True) == 0
    assert text[last_lines_start(text, 100, whole=False) :] == b"two\r\nthree\r\n$ "
    assert last_lines_start(b"31mred\x1b[0mx", 5, whole=False) == 6
    assert last_lines_start(b"", 5, whole=False) == 0


def test_a_state_has_the_modes_before_its_lines() -> None:
    modes = TerminalModes()
    modes.feed(b"\x1b[?2004h")
    data = b"\x1b[?1049hfull\n\x1b[?1049l\x1b[6nlast"
    assert terminal_state(modes, data, 1, whole=True) == b"\x1b[?1049h\x1b[?2004h\x1b[?1049llast"
    assert modes.restore() == b"\x1b[?2004h"
