"""Questions of a command's programs, which `guest run --ask` passes on: passwords, and those to an agent of SSH keys.

The command's output is a sequence of frames, a number of 4 bytes and as many bytes: 4 bytes with the question's number,
then the question, as a client of an SSH agent says it. `askpass` asks by type 240. The answers are frames of the same
kind on its input. A question is a hostile guest's word: it is bounded, and `Answer` alone decides what leaves.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Protocol

from vmbackend.errors import GuestUnreachable

# Gets a question, returns the answer; b"" is a refusal.
Answer = Callable[[bytes], Awaitable[bytes]]
ASKPASS = 240
MAX_BODY = 8192
# The questions of one command that are looked at. Git asks for name and password, each of its connections again.
MAX_QUESTIONS = 64
# Further ones are refused, up to this number of all.
MAX_REFUSED = 1024
_NUMBER = 4
_CHUNK = 32 * 1024


class Reader(Protocol):
    """A command's output."""

    async def read(self, n: int, /) -> bytes:
        """Return at most so many bytes, b"" at the end."""


class Writer(Protocol):
    """A command's input."""

    def write(self, data: bytes, /) -> None:
        """Queue bytes."""

    async def drain(self) -> None:
        """Wait until few bytes are queued."""


async def answer_questions(questions: Reader, answers: Writer, answer: Answer) -> None:
    """Answer one question after the other, until the command's end. Raise GuestUnreachable if a question is invalid."""
    received = bytearray()
    asked = 0
    while block := await questions.read(_CHUNK):
        received += block
        while (question := _take_question(received)) is not None:
            asked += 1
            if asked > MAX_REFUSED:
                raise GuestUnreachable("The machine's helper does not stop asking.")
            said = await answer(question[_NUMBER:]) if asked <= MAX_QUESTIONS else b""
            answers.write(struct.pack(">I", _NUMBER + len(said)) + question[:_NUMBER] + said)
            await answers.drain()


def _take_question(received: bytearray) -> bytes | None:
    """Return the number and the bytes of the next question, taken off what was received; None: it is not complete."""
    if len(received) < _NUMBER:
        return None
    (size,) = struct.unpack_from(">I", received)
    if not _NUMBER < size <= _NUMBER + MAX_BODY:
        raise GuestUnreachable("The machine's helper sent an invalid question.")
    if len(received) < _NUMBER + size:
        return None
    question = bytes(received[_NUMBER : _NUMBER + size])
    del received[: _NUMBER + size]
    return question
