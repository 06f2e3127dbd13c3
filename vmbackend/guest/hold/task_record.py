"""Records of tasks as a guest's hold sends them. The guest chooses what they say, and they are bounded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum, IntFlag

from .frames import COMMAND_WORDS, WORD_BYTES, Fields, GuestGarbage

MAX_ERROR_BYTES = 256
# The error of a task whose machine or keeper died. Its log may have less than what was sent of it.
INTERRUPTED = "interrupted"
MAX_TASK_ID = 10**18 - 1  # as long as ids are in paths
_NO_CODE = (1 << 32) - 1


class TaskStatus(IntEnum):
    """The states of a task."""

    PENDING = 0
    RUNNING = 1
    EXITED = 2  # it ended, whatever its code
    FAILED = 3  # it could not start, its deadline came, or its keeper died


class _Flag(IntFlag):
    LATE = 1
    LOST = 2
    KEEPS_LOG = 4


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """One task. `exit_code` is 128 + N for a program that signal N killed. Times are the guest's, None if not yet.

    `command`: its first words, at most 4 KiB of them. `log_start` and `log_end`: the offsets of what is kept of both
    outputs together; `log_truncated`: some of them is gone. `ttl`: seconds for which it is kept after its end.
    """

    id: int
    status: TaskStatus
    exit_code: int | None
    pid: int
    timed_out: bool
    log_truncated: bool
    created_at: datetime | None
    started_at: datetime | None
    exited_at: datetime | None
    ttl: int
    log_start: int
    log_end: int
    error: str
    command: tuple[str, ...]

    @property
    def is_over(self) -> bool:
        """Return whether its program has ended."""
        return self.status >= TaskStatus.EXITED


def read_task(fields: Fields, wanted: int | None = None) -> TaskRecord:
    """Return the record that an answer has. Raise GuestGarbage, also for that of another task than the wanted one."""
    id, status = fields.number(8), fields.number(1)
    if not 1 <= id <= MAX_TASK_ID or wanted not in (None, id) or status not in set(TaskStatus):
        raise GuestGarbage
    code, pid, flags = fields.number(4), fields.number(4), _Flag(fields.number(1) & 7)
    created, started, exited = (fields.time() for _ in range(3))
    ttl, log_start, log_end = fields.number(4), fields.offset(), fields.offset()
    error = _printable(fields.short_text(MAX_ERROR_BYTES))
    command = fields.short_texts(COMMAND_WORDS, WORD_BYTES)
    fields.require_end()
    return TaskRecord(
        id=id,
        status=TaskStatus(status),
        exit_code=None if code == _NO_CODE else code & 0xFF,
        pid=pid,
        timed_out=_Flag.LATE in flags,
        log_truncated=_Flag.LOST in flags,
        created_at=created,
        started_at=started,
        exited_at=exited,
        ttl=ttl,
        log_start=min(log_start, log_end),
        log_end=log_end,
        error=error,
        command=command,
    )


def read_tasks(fields: Fields) -> tuple[bool, list[TaskRecord]]:
    """Return whether there are older ones, and the records of one answer, the newest first. Raise GuestGarbage."""
    more, found = fields.number(1), []
    while rest := fields.left:
        size = fields.number(4)
        if size + 4 > rest:
            raise GuestGarbage
        found.append(read_task(Fields(fields.part(size))))
    if more and not found:
        raise GuestGarbage
    return bool(more), found


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
