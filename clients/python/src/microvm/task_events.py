"""The events of a task, and reading them from a stream."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass

from microvm.events import Event


@dataclass(frozen=True)
class TaskOutput:
    """Bytes that a task wrote. `stream`: stdout or stderr. `offset`: after them, in both outputs together; `follow`
    goes on there.
    """

    stream: str
    data: bytes
    offset: int


@dataclass(frozen=True)
class TaskGap:
    """Bytes that are gone: the task has written more than its log keeps."""

    bytes: int


@dataclass(frozen=True)
class TaskExit:
    """The end of a task. `exit_code`: -1 if it has none; `error`: why it failed, or empty."""

    exit_code: int
    status: str
    error: str


TaskEvent = TaskOutput | TaskGap | TaskExit


def task_event(event: Event) -> TaskEvent | None:
    """Return what an event of the stream says; None if it says nothing of the output."""
    match event.kind:
        case "stdout" | "stderr":
            return TaskOutput(event.kind, b64decode(event.data["data"]), int(event.id.rpartition("-")[2]))
        case "gap":
            return TaskGap(event.data["bytes"])
        case "exit":
            return TaskExit(event.data["exit_code"], event.data["status"], event.data.get("error", ""))
        case _:
            return None
