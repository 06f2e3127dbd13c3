"""Tasks of a local hold: their starts and outputs, as tests want them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.vmbackend.hold_factory import LocalHold
from vmbackend.errors import BackendError
from vmbackend.guest.hold.client import HoldClient
from vmbackend.guest.hold.command import CommandStart
from vmbackend.guest.hold.task_output import TaskOutput
from vmbackend.guest.hold.task_pieces import TaskPiece
from vmbackend.guest.hold.task_record import TaskRecord
from vmbackend.guest.hold.tasks import TaskLimits, TaskOptions

WINDOW = 256 * 1024
KIB, MIB = 1 << 10, 1 << 20


@dataclass
class Received:
    """Keep what a reader got: bytes of each output, gaps, and how it ended."""

    out: bytes = b""
    err: bytes = b""
    gaps: int = 0
    at: int = 0
    pieces: list[TaskPiece] = field(default_factory=list)
    end: TaskRecord | None = None


async def begin(
    client: HoldClient, script: str | list[str], *, limits: TaskLimits | None = None, **options: Any
) -> TaskRecord:
    """Start a task that nobody follows."""
    return await client.tasks.start(start_of(script), options_of(limits, options))


async def begin_followed(
    client: HoldClient,
    script: str | list[str],
    *,
    limits: TaskLimits | None = None,
    window: int = WINDOW,
    **options: Any,
) -> tuple[TaskRecord, TaskOutput]:
    return await client.tasks.start_followed(start_of(script), options_of(limits, options), window=window)


def start_of(script: str | list[str]) -> CommandStart:
    return CommandStart(["sh", "-c", script] if isinstance(script, str) else script, {}, "/", None)


def options_of(limits: TaskLimits | None, options: dict[str, Any]) -> TaskOptions:
    return TaskOptions(limits=limits or TaskLimits(), **options)


async def read_more(
    output: TaskOutput, seen: Received, until: Callable[[Received], bool] = lambda _: False
) -> Received:
    """Read to the end, or until something was seen."""
    while seen.end is None and not until(seen):
        take(seen, await output.read())
    return seen


def take(seen: Received, got: TaskPiece | TaskRecord) -> None:
    if isinstance(got, TaskRecord):
        seen.gaps += got.log_end - seen.at
        seen.end = got
        return
    seen.gaps += got.offset - seen.at
    seen.at = got.end
    seen.pieces.append(got)
    if got.output == 1:
        seen.out += got.data
    else:
        seen.err += got.data


async def read_all(output: TaskOutput) -> Received:
    return await read_more(output, Received())


async def run(client: HoldClient, script: str | list[str], **options: Any) -> Received:
    """Start a task and read it to its end."""
    _, output = await begin_followed(client, script, **options)
    seen = await read_all(output)
    client.tasks.close_output(output)
    return seen


async def ended(client: HoldClient, task: int) -> TaskRecord:
    """The record of a task that ends soon."""
    while not (record := await client.tasks.show(task)).is_over:
        await asyncio.sleep(0.02)
    return record


def with_client(hold: LocalHold, work: Callable[[HoldClient], Awaitable[None]], seconds: float = 120) -> None:
    async def session() -> None:
        client = hold.client()
        try:
            await asyncio.wait_for(work(client), seconds)
        finally:
            with suppress(BackendError):
                await client.close()

    asyncio.run(session())
