"""The file in a form, found while other requests of the loop go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cdn.form_uploads.form import HEAD_BYTES, HELD_BYTES, STEP_BYTES, FormFile
from common.errors import ValidationError

KIND = "multipart/form-data; boundary=b"
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
OTHER = b'--b\r\nContent-Disposition: form-data; name="other"\r\n\r\n'
END = b"\r\n--b--"


async def sent(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


def form_of(*pieces: bytes) -> FormFile:
    return FormFile(sent(*pieces), KIND, sum(map(len, pieces)))


async def received(form: FormFile) -> tuple[int, bytes]:
    """The size that the permit is made for, and the file."""
    size = await form.begin()
    return size, b"".join([piece async for piece in form.pieces()])


def test_a_form_of_blank_lines_leaves_the_loop_to_others() -> None:
    async def run() -> int:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        beside = asyncio.ensure_future(others())
        with pytest.raises(ValidationError):
            await form_of(OTHER + b"\r\n\r\n" * HEAD_BYTES).begin()
        beside.cancel()
        return turns

    # And no more than the first bytes is parsed: the body is four times as long.
    assert HEAD_BYTES // STEP_BYTES - 1 <= asyncio.run(run()) <= HEAD_BYTES // STEP_BYTES + 1


@pytest.mark.parametrize("cut", range(-4, 5))
@pytest.mark.parametrize("at", ["of a step", "of a piece"])
def test_the_file_is_found_wherever_a_step_or_a_piece_ends(cut: int, at: str) -> None:
    data = bytes(3 << 20)
    head = OTHER + b"x" * (STEP_BYTES - len(OTHER) - len(b"\r\n") - len(FILE) + cut) + b"\r\n" + FILE
    body = head + data + END
    place = len(head) + cut - 4 if at == "of a piece" else len(body) // 2
    middle = place + len(data) // 2
    size, found = asyncio.run(received(form_of(body[:place], body[place:middle], body[middle:])))
    assert (size, len(found)) == (len(data), len(data))


def test_what_follows_the_file_is_not_parsed() -> None:
    """Small parts would cost far more than the bytes of a file."""
    after = b"\r\n--b\r\na:b\r\n\r\n" * STEP_BYTES + b"\r\n--b\r\n:no header"
    assert asyncio.run(received(form_of(FILE + b"one" + after + END))) == (3, b"one")


def test_a_small_part_of_a_file_is_held_until_its_permit_is_made() -> None:
    taken = 0

    async def trickling() -> AsyncIterator[bytes]:
        nonlocal taken
        yield FILE
        while True:
            taken += 1000
            yield bytes(1000)

    size = asyncio.run(FormFile(trickling(), KIND, 1 << 30).begin())
    assert size == (1 << 30) - len(FILE) - len(END)
    assert HELD_BYTES < taken <= HELD_BYTES + 1000 <= 100_000
