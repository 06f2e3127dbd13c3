"""Commands of fake guests, which run on this host. One whose programs ask is run by the kit's own helper."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest.asking import Answer, answer_questions
from vmbackend.guest.buffers import BoundedBuffer, EnoughOutput
from vmbackend.guest.commands import TIMED_OUT, start_failure
from vmbackend.guest.communicate import no_parts
from vmbackend.guest.output import CommandExit, OutputPart, StreamOptions
from vmbackend.guest.output_reader import OutputReader
from vmbackend.guest.running import DEADLINE_SLACK
from vmbackend.guest.session import ExecResult
from vmbackend.guest.sources import closing_source

_FOLDER = "/dev/shm"  # noqa: S108  # as in a guest
_CHUNK = 64 * 1024
_LOOK_SECONDS = 0.02


async def finish_command(
    process: asyncio.subprocess.Process,
    stdin: bytes,
    *,
    timeout: float,
    grace: float,
    max_output: int,
    stop_after: tuple[bytes, int] | None,
) -> ExecResult:
    """Do what `GuestSession.execute` does, with a process that leads a session of its own; times in seconds."""
    started = time.monotonic()
    out, err = BoundedBuffer(max_output, stop_after), BoundedBuffer(max_output)
    timed_out = stopped = False
    try:
        async with asyncio.timeout(timeout):
            feeding = _feed(process.stdin, stdin)
            await asyncio.gather(feeding, _drain(process.stdout, out), _drain(process.stderr, err), process.wait())
    except TimeoutError:
        timed_out = True
        if grace:
            await _end_gently(process, grace)
    except EnoughOutput:
        stopped = True
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Closes the pipes: `wait` returns at their end, which is not noticed if much output was left unread.
        process._transport.close()  # type: ignore[attr-defined]
    code = await process.wait()
    return ExecResult(
        exit_code=124 if timed_out else 0 if stopped else (code if code >= 0 else 128 - code),
        stdout=bytes(out.data),
        stderr=bytes(err.data),
        duration_ms=int((time.monotonic() - started) * 1000),
        truncated=out.truncated or err.truncated,
        timed_out=timed_out,
    )


async def stream_command(
    process: asyncio.subprocess.Process, options: StreamOptions
) -> AsyncGenerator[OutputPart | CommandExit, None]:
    """Do what `GuestSession.execute_streamed` does, with a process that leads a session of its own."""
    timeout, grace = options.get("timeout", 30.0), options.get("grace", 0.0)
    if process.stdout is None or process.stderr is None:
        return
    started = time.monotonic()
    feed = _feed(process.stdin, options.get("stdin", b""), options.get("stdin_parts"))
    feeding, ending = asyncio.ensure_future(feed), asyncio.Event()
    timer = asyncio.ensure_future(_end_after(process, timeout, grace, ending))
    reader = OutputReader(process.stdout, process.stderr, started + timeout + DEADLINE_SLACK)
    try:
        yield OutputPart("stdout", b"")
        while (part := await reader.take_part()) is not None:
            yield part
        await process.wait()
    finally:
        if process.returncode is None and grace:
            await _end_gently(process, grace)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for task in (feeding, timer):
            task.cancel()
        await reader.close()
        process._transport.close()  # type: ignore[attr-defined]
    code = await process.wait()
    elapsed = int((time.monotonic() - started) * 1000)
    yield CommandExit(TIMED_OUT if ending.is_set() else code if code >= 0 else 128 - code, elapsed, ending.is_set())


async def _end_after(process: asyncio.subprocess.Process, seconds: float, grace: float, ending: asyncio.Event) -> None:
    """Set `ending` and end the process, with all of its session, after so many seconds."""
    await asyncio.sleep(seconds)
    ending.set()
    if grace:
        await _end_gently(process, grace)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def run_asking(
    helper: Path,
    command: Sequence[str],
    *,
    answer: Answer,
    env: Mapping[str, str],
    cwd: Path,
    timeout: float,
    grace: float,
    max_output: int,
) -> ExecResult:
    """Do what `GuestSession.execute_answering` does; times in seconds. Raise GuestCommandInvalid."""
    variables = [word for pair in env.items() for word in ("--env", "=".join(pair))]
    limits = ["--timeout", str(timeout), "--grace", str(grace), "--ask", _FOLDER, "--cwd", str(cwd)]
    pipe = asyncio.subprocess.PIPE
    started = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        str(helper), "run", *limits, *variables, "--", *command, stdin=pipe, stdout=pipe, stderr=pipe
    )
    said = BoundedBuffer(max_output)
    try:
        if process.stdin and process.stdout and process.stderr:
            answering = answer_questions(process.stdout, process.stdin, answer)
            await asyncio.gather(answering, _drain(process.stderr, said), process.wait())
    finally:
        process._transport.close()  # type: ignore[attr-defined]
    code, elapsed = process.returncode or 0, time.monotonic() - started
    if (failure := start_failure(code, bytes(said.data))) is not None:
        raise GuestCommandInvalid(f"The command cannot be started: {failure}")
    return ExecResult(
        code, b"", bytes(said.data), int(elapsed * 1000), said.truncated, code == TIMED_OUT and elapsed >= timeout
    )


async def archive_directory(place: Path, said: bytearray) -> AsyncGenerator[bytes, None]:
    """Yield the output of this host's `tar` for a directory, which is ended when no more is read; `said` gets its
    errors.
    """
    process = await asyncio.create_subprocess_exec(
        *("tar", "-cf", "-", "--sort=name", "."),
        cwd=place,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        while process.stdout is not None and (block := await process.stdout.read(_CHUNK)):
            yield block
        said += await process.stderr.read() if process.stderr is not None else b""
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process._transport.close()  # type: ignore[attr-defined]
        await process.wait()


async def archive_file(place: Path) -> AsyncGenerator[bytes, None]:
    """Yield what a test gives in an archive's place: the blocks of a file or named pipe; empty blocks until a pipe's
    writer sends.
    """
    fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    try:
        has_begun = not stat.S_ISFIFO(os.fstat(fd).st_mode)
        while (block := _read_now(fd)) or not (has_begun and block is not None):
            yield block or b""
            has_begun |= bool(block)
            if not block:
                await asyncio.sleep(_LOOK_SECONDS)
    finally:
        os.close(fd)


def _read_now(fd: int) -> bytes | None:
    """Return the bytes that are there; None if nothing is there yet."""
    try:
        return os.read(fd, _CHUNK)
    except BlockingIOError:
        return None


async def _end_gently(process: asyncio.subprocess.Process, seconds: float) -> None:
    with suppress(ProcessLookupError, TimeoutError):
        os.killpg(process.pid, signal.SIGTERM)
        await asyncio.wait_for(process.wait(), seconds)


async def _feed(stdin: asyncio.StreamWriter | None, data: bytes, parts: AsyncIterator[bytes] | None = None) -> None:
    if stdin is None:
        return
    async with closing_source(parts or no_parts()) as source:
        with suppress(BrokenPipeError, ConnectionResetError):
            stdin.write(data)
            await stdin.drain()
            async for part in source:
                stdin.write(part)
                await stdin.drain()
    stdin.close()


async def _drain(stream: asyncio.StreamReader | None, buffer: BoundedBuffer) -> None:
    while stream is not None and (block := await stream.read(_CHUNK)):
        buffer.append(block)
