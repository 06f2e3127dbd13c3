"""The file in a form, found while other requests of the loop go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from cdn.form_uploads.form import HELD_BYTES, OTHER_BYTES, STEP_BYTES, FormFile
from common.errors import BodyEndedEarly, ValidationError

KIND = "multipart/form-data; boundary=b"
FILE = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
OTHER = b'--b\r\nContent-Disposition: form-data; name="other"\r\n\r\n'
OTHER_OF_NONE = b"\r\n" + OTHER
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


@pytest.mark.parametrize("before", [OTHER, FILE + OTHER_OF_NONE])
def test_a_form_of_blank_lines_leaves_the_loop_to_others(before: bytes) -> None:
    """Before the file and after it."""

    async def run() -> int:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        beside = asyncio.ensure_future(others())
        with pytest.raises(ValidationError):
            await form_of(before + b"\r\n\r\n" * OTHER_BYTES).begin()
        beside.cancel()
        return turns

    # And no more than the first bytes is parsed: the body is four times as long.
    assert OTHER_BYTES // STEP_BYTES - 1 <= asyncio.run(run()) <= OTHER_BYTES // STEP_BYTES + 2


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


SMALL_FIELD = b"\r\n" + OTHER + b"x"


@pytest.mark.parametrize("data", [b"one", bytes(1 << 20)])
@pytest.mark.parametrize("fields", [0, 1, 500])
def test_other_fields_may_follow_the_file(data: bytes, fields: int) -> None:
    size, found = asyncio.run(received(form_of(FILE + data + SMALL_FIELD * fields + END)))
    assert found == data
    assert size - len(data) in (0, fields * len(SMALL_FIELD))


@pytest.mark.parametrize("data", [b"one", bytes(1 << 20)])
@pytest.mark.parametrize(
    ("after", "error"),
    [
        (SMALL_FIELD * 10_000 + END, ValidationError),
        (END + b"x" * 100_000, ValidationError),
        (b"\r\n" + FILE + b"two" + END, ValidationError),
        (b"\r\n--b\r\n:no header" + END, ValidationError),
        (b"\r\n--c--", BodyEndedEarly),
        (SMALL_FIELD, BodyEndedEarly),
    ],
)
def test_a_form_that_does_not_end_as_one_with_one_file_is_refused(
    data: bytes, after: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        asyncio.run(received(form_of(FILE + data + after)))


def test_ten_thousand_small_fields_before_the_file_are_refused() -> None:
    with pytest.raises(ValidationError):
        asyncio.run(received(form_of(SMALL_FIELD[2:] + SMALL_FIELD * 10_000 + b"\r\n" + FILE + b"one" + END)))


@pytest.mark.parametrize(
    ("sent_name", "name"),
    [
        ("a.txt", "a.txt"),
        ("/etc/passwd", "passwd"),
        ("../../a b.txt", "a b.txt"),
        (r"C:\folder\a.txt", "a.txt"),
        (r"..\a.txt", "a.txt"),
        (r"say \"hi\".txt", 'say "hi".txt'),
        (".hidden", ".hidden"),
    ],
)
def test_folders_of_a_name_are_left_out(sent_name: str, name: str) -> None:
    form = form_of(FILE.replace(b'"a"', f'"{sent_name}"'.encode()) + b"x" + END)
    asyncio.run(form.begin())
    assert form.filename == name


@pytest.mark.parametrize("sent_name", ["", "/", "a/", "..", "a/..", ".", "a\x00b", "a\x7fb", "a\tb", "x" * 256])
def test_names_of_no_file_are_refused(sent_name: str) -> None:
    with pytest.raises(ValidationError):
        asyncio.run(form_of(FILE.replace(b'"a"', f'"{sent_name}"'.encode()) + b"x" + END).begin())


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
