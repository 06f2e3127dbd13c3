"""An answer as it comes: server-sent events of chat completions, or one completion in whole; within bounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from assist.model.errors import AnswerBroken, AnswerTooLong
from assist.model.events import MAX_EVENT_BYTES, EventReader, EventTooLarge

MAX_ANSWER_BYTES = 256 * 1024
# An event for each token is some hundred bytes long, so a transfer is much larger than its answer.
MAX_TRANSFER_BYTES = 32 * 1024 * 1024
DONE = b"[DONE]"
TOO_MUCH = "The model's server sent more than any answer needs."


@dataclass(slots=True)
class Answer:
    """Answer as far as it came. Tokens are None if the server does not report them. `is_asked`: the model has the whole
    question, and its server has not failed.
    """

    parts: list[str] = field(default_factory=list)
    size: int = 0
    is_asked: bool = False
    finish_reason: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def has_cost(self) -> bool:
        """Return whether the model has worked for this answer."""
        return self.is_asked or self.size > 0

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def add(self, text: str) -> None:
        self.size += len(text.encode("utf-8", "surrogatepass"))
        if self.size > MAX_ANSWER_BYTES:
            raise AnswerTooLong(f"The model's answer is longer than {MAX_ANSWER_BYTES // 1024} KiB.")
        self.parts.append(text)


class AnswerReader:
    """Reader that is fed with the bytes of a response and fills `answer`. Raises AnswerBroken, AnswerTooLong."""

    def __init__(self, answer: Answer, *, is_stream: bool) -> None:
        self._answer = answer
        self._events = EventReader() if is_stream else None
        self._whole = bytearray()
        self._received = 0
        self.is_complete = False

    def feed(self, data: bytes) -> None:
        self._received += len(data)
        if self._received > MAX_TRANSFER_BYTES:
            raise AnswerTooLong(TOO_MUCH)
        if self._events is not None:
            self._read_events(self._events.feed(data))
            return
        self._whole += data
        if len(self._whole) > MAX_EVENT_BYTES:
            raise AnswerTooLong(TOO_MUCH)

    def end(self) -> None:
        """Read the rest after the last byte. Raise AnswerBroken if the answer is not whole."""
        if self._events is not None:
            self._read_events(self._events.end())
        elif self._whole.strip():
            self._read_completion(_parsed(bytes(self._whole)), "message")
        if not (self.is_complete or self._answer.finish_reason):
            raise AnswerBroken("The model's answer ended early.")

    def _read_events(self, events: Iterator[bytes]) -> None:
        """Read the events up to the last one. Bytes after it are not read."""
        try:
            for event in events:
                data = event.strip()
                if data == DONE:
                    self.is_complete = True
                    return
                if data:
                    self._read_completion(_parsed(data), "delta")
        except EventTooLarge:
            raise AnswerTooLong(TOO_MUCH) from None

    def _read_completion(self, value: dict[str, Any], part: str) -> None:
        if value.get("error"):
            raise AnswerBroken("The model's server reported an error within its answer.")
        self._read_usage(value.get("usage"))
        choices = value.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        said = choice.get(part)
        text = said.get("content") if isinstance(said, dict) else None
        if isinstance(text, str):
            self._answer.add(text)
        if isinstance(choice.get("finish_reason"), str):
            self._answer.finish_reason = choice["finish_reason"]

    def _read_usage(self, usage: Any) -> None:
        """Read the server's counts of tokens. They may be anything; values that are no counts are treated as not
        reported.
        """
        if not isinstance(usage, dict):
            return
        counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
        if all(type(count) is int and 0 <= count < 1 << 40 for count in counts):
            self._answer.prompt_tokens, self._answer.output_tokens = counts


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise AnswerBroken("The model's server sent something that is no chat completion.") from None
    if not isinstance(value, dict):
        raise AnswerBroken("The model's server sent something that is no chat completion.")
    return value
