"""Running external tools: killed with this process, monitored while they run, with limited output."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vmbackend.errors import BackendUnavailable
from vmbackend.images.types import Job

POLL_SECONDS = 0.1
MAX_STDERR = 64 << 10
# The inherited environment. HOME is replaced: a credential file in it would be used without being configured.
_PASSED_ON = [
    "PATH",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
]


@dataclass(frozen=True, slots=True)
class CompletedTool:
    """A tool that ended by itself. `truncated`: its stdout exceeded the limit."""

    returncode: int
    stdout: bytes
    stderr: str
    truncated: bool


class _Drain(threading.Thread):
    """Stores the first `limit` bytes of a pipe and drops the rest, so that the writer never blocks."""

    def __init__(self, pipe: IO[bytes], limit: int) -> None:
        super().__init__(daemon=True)
        self._pipe, self._limit = pipe, limit
        self.data = bytearray()
        self.truncated = False
        self.start()

    def run(self) -> None:
        with self._pipe:
            while chunk := self._pipe.read(65536):
                free = self._limit - len(self.data)
                self.data += chunk[:free]
                self.truncated = self.truncated or len(chunk) > free


def run_tool(
    argv: Sequence[str | Path],
    *,
    job: Job,
    tmp: Path,
    tick: Callable[[], None] | None = None,
    max_stdout: int = 64 << 10,
    max_file_bytes: int | None = None,
) -> CompletedTool:
    """Run a tool to its end; `tick` is called about every 0.1 s and may raise, like `job.check_cancelled()`.

    On any exception the tool is killed and reaped first. If this process or thread dies, the kernel kills the tool.
    `tmp` is its HOME and directory for temporary files. Raises BackendUnavailable if it is not installed.
    """
    limits = ["prlimit", f"--fsize={max_file_bytes}", "--"] if max_file_bytes else []
    command = ["setpriv", "--pdeathsig", "KILL", "--", *limits, *map(str, argv)]
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    environment |= {"HOME": str(tmp), "TMPDIR": str(tmp), "XDG_RUNTIME_DIR": str(tmp), "LC_ALL": "C.UTF-8"}
    if shutil.which(str(argv[0])) is None:
        raise BackendUnavailable(f"The host lacks the program {argv[0]}; run the doctor command.")
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        # What the tools make is the content of guests, whose modes must not depend on those of the platform's files.
        umask=0o022,
    )
    assert process.stdout is not None  # noqa: S101 - PIPE was requested
    assert process.stderr is not None  # noqa: S101
    out, err = _Drain(process.stdout, max_stdout), _Drain(process.stderr, MAX_STDERR)
    try:
        _wait(process, job, tick)
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()
        out.join(5)
        err.join(5)
    return CompletedTool(process.returncode, bytes(out.data), err.data.decode(errors="replace"), out.truncated)


def _wait(process: subprocess.Popen[bytes], job: Job, tick: Callable[[], None] | None) -> None:
    delay = 0.005  # fast tools should not take a whole polling interval
    while True:
        job.check_cancelled()
        if tick is not None:
            tick()
        try:
            process.wait(delay)
            return
        except subprocess.TimeoutExpired:
            delay = min(POLL_SECONDS, delay * 2)
