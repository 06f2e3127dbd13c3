"""The text of event streams, in which no data can end a line."""

from __future__ import annotations

import pytest

from common.sse import stream
from common.sse.frames import EventId, comment, frame, one_line, parse_id


def test_a_frame_has_its_kind_its_id_and_one_line_of_data() -> None:
    data = one_line({"line": 'a\nb\r\u2028"\x00é', "n": 1})
    text = frame(EventId("0a1b2c3d", 7), "message", data)
    assert text.endswith(b"\n\n")
    assert text.count(b"\n") == 4
    assert text.isascii()
    assert text.startswith(b"event: message\nid: 0a1b2c3d-7\ndata: {")
    assert comment("a\r\nb\rc\u2028d\0é") == b": a b c d\0?\n\n"


@pytest.mark.parametrize(
    "text", [None, "", "7", "0a1b2c3d", "0a1b2c3d-", "0A1b2c3d-1", "x" * 5000, "0a1b2c3d-1\n", "é"]
)
def test_a_malformed_id_is_none(text: str | None) -> None:
    assert parse_id(text) is None


def test_the_heartbeat_is_that_of_the_contract() -> None:
    assert (stream.HEARTBEAT_SECONDS, stream.HEARTBEAT, stream.RETRY) == (15.0, b": heartbeat\n\n", b"retry: 2000\n\n")
