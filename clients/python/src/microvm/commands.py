"""Output and result of a command."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from codecs import getincrementaldecoder
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from microvm.errors import ConnectionFailed, error_of
from microvm.events import Event

OLDER = "The service does not give the bytes of commands: it is older than this client."


@dataclass(frozen=True)
class CommandOutput:
    """Output of a command: `data` byte for byte, and `text`, in which bytes that are not UTF-8 are replaced.

    `text` has whole characters: one whose bytes come apart is in the event of its last byte.
    """

    stream: Literal["stdout", "stderr"]
    data: bytes
    text: str


@dataclass(frozen=True)
class CommandExit:
    """The end of a command: at its timeout `timed_out` and the code 124; 128+N where signal N killed it."""

    exit_code: int
    duration_ms: int
    timed_out: bool


@dataclass(frozen=True)
class ExactResult:
    """A finished command, its outputs byte for byte. `truncated`: one of them had more than 1 MiB."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    duration_ms: int
    truncated: bool
    timed_out: bool


CommandEvent = CommandOutput | CommandExit


class CommandEvents:
    """The events of one command."""

    def __init__(self) -> None:
        make = getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}

    def read(self, event: Event) -> list[CommandEvent]:
        """Nothing for a kind that is not known. Raises ApiError for an error, KeyError for an event of another form."""
        data: dict[str, Any] = event.data
        if event.kind == "error":
            raise error_of(data.get("status", 500), json.dumps(data).encode(), None)
        if event.kind == "exit":
            return [*self._rest(), CommandExit(data["exit_code"], data["duration_ms"], data["timed_out"])]
        if event.kind == "stdout":
            return [self._output("stdout", exact_bytes(data, "data"))]
        return [self._output("stderr", exact_bytes(data, "data"))] if event.kind == "stderr" else []

    def _output(self, stream: Literal["stdout", "stderr"], data: bytes) -> CommandOutput:
        return CommandOutput(stream, data, self._decoders[stream].decode(data))

    def _rest(self) -> list[CommandOutput]:
        """Return the replacement of characters that were never completed."""
        ends = [CommandOutput("stdout", b"", self._decoders["stdout"].decode(b"", True))]
        ends += [CommandOutput("stderr", b"", self._decoders["stderr"].decode(b"", True))]
        return [end for end in ends if end.text]


def exact_body(body: Mapping[str, Any], stdin: bytes = b"") -> dict[str, Any]:
    """This body, with an answer that has outputs byte for byte, and `stdin` in place of the body's own where given."""
    given = {"stdin": b64encode(stdin).decode(), "stdin_encoding": "base64"} if stdin else {}
    return {**body, **given, "encoding": "base64"}


def exact_bytes(answer: Mapping[str, Any], name: str) -> bytes:
    """A field of an answer to `exact_body`. Raises ConnectionFailed where the service sent text."""
    if "lossy" not in answer:
        raise ConnectionFailed(OLDER)
    return b64decode(answer[name])


def exact_result(answer: Mapping[str, Any]) -> ExactResult:
    """Raises ConnectionFailed where the service sent text."""
    outputs = exact_bytes(answer, "stdout"), exact_bytes(answer, "stderr")
    return ExactResult(answer["exit_code"], *outputs, answer["duration_ms"], answer["truncated"], answer["timed_out"])


def exact_sandbox_result(answer: Mapping[str, Any]) -> ExactResult:
    """The same of a command in a sandbox."""
    outputs = exact_bytes(answer, "output"), exact_bytes(answer, "error")
    return ExactResult(answer["exitCode"], *outputs, answer["duration"], answer["truncated"], answer["timedOut"])
