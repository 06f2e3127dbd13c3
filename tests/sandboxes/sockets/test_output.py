"""The output of a terminal that a process keeps."""

from __future__ import annotations

import pytest

from workspaces.data_plane.sockets.output import DROP_BYTES, OutputBuffer


def test_modes_that_were_set_in_what_is_not_kept_any_more_are_part_of_the_state() -> None:
    output = OutputBuffer(0, 1000)
    modes = b"\x1b[?1049h\x1b[1;24r"
    output.append(0, modes)
    output.append(len(modes), b"x\n" * DROP_BYTES)
    assert output.start > len(modes)
    assert output.state(10)().startswith(modes)


@pytest.mark.parametrize("size", [256 * 1024, 1 << 20])
def test_as_much_is_kept_as_the_setting_says(size: int) -> None:
    output = OutputBuffer(0, size)
    for block in range(300):
        output.append(block * 10_000, bytes([block % 251]) * 10_000)
    assert size <= output.end - output.start <= size + DROP_BYTES
    assert output.piece(output.end - 2, 10) == bytes([299 % 251]) * 2
    assert output.piece(output.start, 1) == bytes([output.start // 10_000 % 251])
