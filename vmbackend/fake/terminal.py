"""The fake guests' terminals: a pseudo-terminal and a process of this host. For tests only."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import pwd
import shutil
import signal
import struct
import termios
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vmbackend.errors import GuestCommandInvalid, GuestUnreachable
from vmbackend.guest.terminal_contract import Terminal, TerminalExit, terminal_size

_CHUNK = 32 * 1024
# Seconds between two checks of an idle terminal whether its machine still runs.
_CHECK_SECONDS = 0.2


async def open_terminal(
    command: Sequence[str] | None,
    *,
    size: tuple[int, int],
    env: Mapping[str, str],
    cwd: Path,
    user: str | None,
    require_ready: Callable[[], object],
) -> FakeTerminal:
    """Start the command; `require_ready` raises if the machine does not run. Raises GuestCommandInvalid."""
    words = _shell(user) if command is None else list(command)
    if not words or not words[0] or "\0" in words[0] or shutil.which(words[0], path=env.get("PATH")) is None:
        raise GuestCommandInvalid("The command cannot be started.")
    outer, inner = os.openpty()
    os.set_blocking(outer, False)
    _set_size(outer, size)
    try:
        # setsid makes the terminal the controlling one; preexec_fn is unsafe in a process with threads. A process
        # started in the background ignores these signals, and its children inherit that.
        process = await asyncio.create_subprocess_exec(
            *("env", "--default-signal=INT,QUIT,HUP", "setsid", "-c"),
            *words,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            cwd=cwd,
            env=dict(env),
        )
    except (OSError, ValueError, TypeError) as error:
        os.close(outer)
        raise GuestCommandInvalid("The command cannot be started.") from error
    finally:
        os.close(inner)
    return FakeTerminal(outer, process, require_ready)


def _shell(user: str | None) -> list[str]:
    known = pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())
    for shell in (known.pw_shell, "/bin/bash"):
        if shell and os.access(shell, os.X_OK):
            return [shell]
    return ["/bin/sh"]


def _set_size(terminal: int, size: tuple[int, int]) -> None:
    cols, rows = terminal_size(*size)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))


class FakeTerminal(Terminal):
    """A terminal without buffers besides the kernel's."""

    def __init__(self, outer: int, process: asyncio.subprocess.Process, require_ready: Callable[[], object]) -> None:
        self._outer = outer
        self._process = process
        self._require_ready = require_ready
        self._hung_up = False
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()

    async def read(self) -> bytes:
        async with self._reading:
            while True:
                # Checked before the read: output written before the exit is available then.
                ended = self._process.returncode is not None
                await self._check_machine()
                try:
                    return b"" if self._hung_up else os.read(self._outer, _CHUNK)
                except BlockingIOError:
                    if ended:
                        return b""  # a background process has the terminal open
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise GuestUnreachable("The machine's terminal does not answer.") from error
                    return b""
                await self._ready(writing=False)

    async def write(self, data: bytes) -> None:
        async with self._writing:
            rest = memoryview(data)
            while rest and not self._hung_up and self._process.returncode is None:
                await self._check_machine()
                try:
                    rest = rest[os.write(self._outer, rest[:_CHUNK]) :]
                except BlockingIOError:
                    await self._ready(writing=True)
                except OSError:
                    return

    async def resize(self, cols: int, rows: int) -> None:
        if not self._hung_up:
            _set_size(self._outer, (cols, rows))

    async def wait(self) -> TerminalExit:
        code = await self._process.wait()
        if self._hung_up and code < 0:
            return TerminalExit(None, None)
        return TerminalExit(code, None) if code >= 0 else TerminalExit(None, signal.Signals(-code).name)

    async def close(self) -> None:
        if self._hung_up:
            return
        self._hung_up = True
        if self._process.returncode is None:
            self._hang_up()
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._outer)
        loop.remove_writer(self._outer)
        os.close(self._outer)
        await self._process.wait()

    def _hang_up(self) -> None:
        with suppress(OSError):
            job = os.tcgetpgrp(self._outer)
            # 0 until setsid took the terminal, and killpg(0) would kill this process and its parents.
            if job > 1:
                os.killpg(job, signal.SIGHUP)
        # The leader, too: until setsid ran, it has no group of its own. Not by Process.kill, which would consume the
        # exit status that asyncio's watcher waits for.
        for kill in (os.killpg, os.kill):
            with suppress(OSError):
                kill(self._process.pid, signal.SIGKILL)

    async def _check_machine(self) -> None:
        try:
            self._require_ready()
        except GuestUnreachable:
            await self.close()
            raise

    async def _ready(self, *, writing: bool) -> None:
        """Wait until the terminal is writable or readable, at most until the next check of the machine."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        add, remove = (loop.add_writer, loop.remove_writer) if writing else (loop.add_reader, loop.remove_reader)
        add(self._outer, ready.set)
        try:
            async with asyncio.timeout(_CHECK_SECONDS):
                await ready.wait()
        except TimeoutError:
            return
        finally:
            if not self._hung_up:
                remove(self._outer)
