"""What comes of a command while it runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from microvm.errors import error_of
from microvm.events import Event


@dataclass(frozen=True)
class CommandOutput:
    """Text that a command wrote; bytes that are no UTF-8 are replaced."""

    stream: Literal["stdout", "stderr"]
    text: str


@dataclass(frozen=True)
class CommandExit:
    """The end of a command: at its timeout `timed_out` and the code 124; 128+N where signal N killed it."""

    exit_code: int
    duration_ms: int
    timed_out: bool


CommandEvent = CommandOutput | CommandExit


def command_event(event: Event) -> CommandEvent | None:
    """None for a kind that is not known. Raises ApiError for an error, KeyError for an event of another form."""
    data: dict[str, Any] = event.data
    if event.kind == "error":
        raise error_of(data.get("status", 500), json.dumps(data).encode(), None)
    if event.kind == "exit":
        return CommandExit(data["exit_code"], data["duration_ms"], data["timed_out"])
    if event.kind == "stdout":
        return CommandOutput("stdout", data["data"])
    return CommandOutput("stderr", data["data"]) if event.kind == "stderr" else None
