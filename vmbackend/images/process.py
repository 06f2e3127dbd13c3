"""Outside tools: started so that they die with us, watched while they run, their output bounded."""

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
# What tools may inherit. HOME is replaced: a credential file in it would be used without being configured.
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
    """A tool that ended by itself. `truncated`: it wrote more to stdout than was asked for."""

    returncode: int
    stdout: bytes
    stderr: str
    truncated: bool


class _Drain(threading.Thread):
    """Keeps the first `limit` bytes of a pipe and reads the rest away, so that the writer never_cancelled blocks."""

    def __init__(self, pipe: IO[bytes], limit: int) -> None:
        super().__init__(daemon=True)
        self._pipe, self._limit = pipe, limit
        self.kept = bytearray()
        self.truncated = False
        self.start()

    def run(self) -> None:
        with self._pipe:
            while chunk := self._pipe.read(65536):
                room = self._limit - len(self.kept)
                self.kept += chunk[:room]
                self.truncated = self.truncated or len(chunk) > room


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

    Whatever is raised, the tool is killed and reaped first. If this process (or thread) dies, the kernel
    kills the tool. `tmp` is its HOME and its place for temporary files. Raises BackendUnavailable where
    it is not installed.
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
    )
    assert process.stdout is not None  # noqa: S101 - PIPE was asked for
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
    return CompletedTool(process.returncode, bytes(out.kept), err.kept.decode(errors="replace"), out.truncated)


def _wait(process: subprocess.Popen[bytes], job: Job, tick: Callable[[], None] | None) -> None:
    delay = 0.005  # tools that take milliseconds are not made to take 0.1 s
    while True:
        job.check_cancelled()
        if tick is not None:
            tick()
        try:
            process.wait(delay)
            return
        except subprocess.TimeoutExpired:
            delay = min(POLL_SECONDS, delay * 2)
