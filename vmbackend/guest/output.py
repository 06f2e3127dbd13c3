"""The output of a command as it comes: parts of both streams, then its exit code."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict

StreamName = Literal["stdout", "stderr"]


@dataclass(frozen=True, slots=True)
class OutputPart:
    """Output that a command wrote to one of its streams; `data` may be empty in the first part."""

    stream: StreamName
    data: bytes


@dataclass(frozen=True, slots=True)
class CommandExit:
    """The end of a command; fields as those of `ExecResult`."""

    exit_code: int
    duration_ms: int
    timed_out: bool


StreamedOutput = AsyncIterator[OutputPart | CommandExit]


class StreamOptions(TypedDict, total=False):
    """The options of a command with streamed output: as the parameters of `GuestSession.execute`.

    `stdin_parts` follow `stdin`, each as it comes; the command's input ends with them.
    """

    env: Mapping[str, str] | None
    working_dir: str | None
    user: str | None
    stdin: bytes
    stdin_parts: AsyncIterator[bytes] | None
    timeout: float
    grace: float
