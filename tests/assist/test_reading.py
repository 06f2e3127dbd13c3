"""What servers send as an answer, in all the forms that server-sent events have, and in pieces of any size."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from assist.model.errors import AnswerBroken, AnswerTooLong
from assist.model.reading import Answer, AnswerReader
from assist.validation import answer_fields
from tests.killed_process import ROOT


def event(text: str, finish: str | None = None) -> str:
    return json.dumps({"choices": [{"delta": {"content": text}, "finish_reason": finish}]})


def read(data: bytes, size: int) -> Answer:
    """Fed in pieces of this size."""
    answer = Answer()
    reader = AnswerReader(answer, is_stream=True)
    for begin in range(0, len(data), size):
        reader.feed(data[begin : begin + size])
        if reader.is_complete:
            return answer
    reader.end()
    return answer


LINES = ["data: " + event("one "), "", ": a comment", "event: message", "id: 7", "data:" + event("two "), "", ""]
LINES += ["data: " + event("", "stop"), "", "data: [DONE]", "", ""]
PLAIN = "\n".join(LINES)
IN_PARTS = PLAIN.replace('"finish_reason"', '\ndata: "finish_reason"')
STREAMS = {
    "LF": PLAIN,
    "CR": PLAIN.replace("\n", "\r"),
    "CRLF": PLAIN.replace("\n", "\r\n"),
    "a byte order mark": "\ufeff" + PLAIN,
    "several lines of data": IN_PARTS,
    "several lines of data with CRLF": IN_PARTS.replace("\n", "\r\n"),
    "nothing after the last event": "\n".join(LINES[:-4]),
    "no last line end": PLAIN.rstrip(),
    "something after the end": PLAIN + "data: " + event("three") + "\n\n",
}


@pytest.mark.parametrize("size", [1, 2, 7, 100_000])
@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
def test_all_forms_of_a_stream_hold_the_same_answer(stream: str, size: int) -> None:
    found = read(stream.encode(), size)
    assert (found.text, found.finish_reason) == ("one two ", "stop")


ENDLESS = {"a line": b"data: " * 10_000, "an event": (b"data: " + b"x" * 1000 + b"\n") * 64}


@pytest.mark.parametrize("piece", ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_is_left(piece: bytes) -> None:
    reader = AnswerReader(Answer(), is_stream=True)
    with pytest.raises(AnswerTooLong):
        all(reader.feed(piece) is None for _ in range(100))


def test_a_stream_without_its_end_is_broken() -> None:
    with pytest.raises(AnswerBroken):
        read(PLAIN[: PLAIN.index("two")].encode(), 100)


# A user can ask a model for it. An expression that begins again at each of its characters takes minutes.
BLANK = 60_000 * "\n"
SLOW = [f"```{BLANK}x", f"```json{BLANK}x", f"```{BLANK}{{{BLANK}x", f"```\n{BLANK} ```{BLANK}x", f"```{60_000 * ' '}x"]
REFUSE = """
import sys
from assist.routes import GENERATE
from assist.validation import InvalidAnswer, answer_fields
for text in sys.stdin.read().split("|"):
    try:
        answer_fields(text, GENERATE.schema)
    except InvalidAnswer:
        print("refused")
"""


def test_no_text_of_a_model_takes_long_to_be_refused() -> None:
    """In a process of its own, as nothing ends a regular expression."""
    command = [sys.executable, "-c", REFUSE]
    found = subprocess.run(
        command, cwd=ROOT, input="|".join(SLOW), capture_output=True, text=True, timeout=30, check=False
    )
    assert found.stdout.split() == ["refused"] * len(SLOW), found.stderr


FENCED = ["```json\n{}\n```", "```\n{}```", "```JSON \n {} \n  ```", "\n```\n\n{}\n\n```\n", "{}"]


@pytest.mark.parametrize("text", FENCED)
def test_a_fence_is_taken_off(text: str) -> None:
    assert answer_fields(text, {"type": "object"}) == {}
