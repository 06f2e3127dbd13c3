"""Lines of files that arrive in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import PayloadTooLarge
from workspaces.data_plane.files.edits import Edit, apply_edits
from workspaces.data_plane.files.errors import EditNotApplicable
from workspaces.data_plane.files.lines import LAST, LineCollector, numbered


@given(st.lists(st.sampled_from([b"a", b"\n", b"b\n", b"\n\n", b"cc"])), st.integers(1, 6), st.integers(0, 6))
def test_wanted_lines_are_those_of_the_whole_file_however_it_is_cut(pieces: list[bytes], first: int, more: int) -> None:
    found = LineCollector(first, first + more, 1000)
    for piece in pieces:
        found.feed(piece)
    lines = b"".join(pieces).splitlines(keepends=True)
    assert (bytes(found.content), found.lines) == (b"".join(lines[first - 1 : first + more]), len(lines))


def test_more_than_the_limit_is_refused() -> None:
    found = LineCollector(1, LAST, 10)
    found.feed(b"0123456789")
    with pytest.raises(PayloadTooLarge):
        found.feed(b"0")


def test_numbers_stand_before_lines() -> None:
    assert numbered("a\n\nb", 9, 100) == "     9\ta\n    10\t\n    11\tb"
    assert numbered("a\n", 1, 100) == "     1\ta\n"
    with pytest.raises(PayloadTooLarge):
        numbered("\n" * 20, 1, 100)


def test_a_text_that_overlaps_itself_is_found_twice() -> None:
    with pytest.raises(EditNotApplicable):
        apply_edits(b"aaa", [Edit("aa", "b")], 100)


def test_a_file_that_would_get_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="more than 10"):
        apply_edits(b"a", [Edit("a", "b" * 11)], 10)
