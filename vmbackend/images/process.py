"""Running external tools: killed with this process, monitored while they run, with limited output."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vmbackend.errors import BackendUnavailable
from vmbackend.images.types import Job
from vmbackend.tool_confinement import PROGRAMS, ToolConfinement, confined_command

POLL_SECONDS = 0.1
MAX_STDERR = 64 << 10
# The inherited environment. HOME is replaced: a credential file in it would be used without being configured.
_PASSED_ON = ["PATH", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"]
# Variables for a confined tool. Proxies are the business of its network.
_PASSED_ON_CONFINED = ["SSL_CERT_FILE", "SSL_CERT_DIR"]
_PATH_INSIDE = "/usr/sbin:/usr/bin:/sbin:/bin"
_END_SECONDS = 5.0
# A tool's mounts exist for it alone, and with its first process all of its processes end. Mounts that the host removes
# are removed there as well.
_OWN_MOUNTS = ("unshare", "--mount", "--propagation=slave")
_OWN_PROCESSES = ("--pid", "--fork", "--kill-child")
# The first that the host allows. A new /proc is refused if parts of the present one are covered, as in some
# containers. Without CAP_SYS_ADMIN all are, and then a tool mounts nothing either.
_NAMESPACES = (
    (*_OWN_MOUNTS, *_OWN_PROCESSES, "--mount-proc", "--"),
    (*_OWN_MOUNTS, *_OWN_PROCESSES, "--"),
    (*_OWN_MOUNTS, "--"),
    (),
)
NAMESPACE_SECONDS = 60.0
# A process that is started dies with this one only some milliseconds later (`setpriv`, `unshare`). The tool begins once
# this process has answered, so it never begins without it.
_ONCE_ANSWERED = ("sh", "-c", 'echo >&0 && read -r _ && exec "$0" "$@" </dev/null')


@dataclass(frozen=True, slots=True)
class CompletedTool:
    """A tool that ended by itself. `truncated`: its stdout exceeded the limit."""

    returncode: int
    stdout: bytes
    stderr: str
    truncated: bool


class _Drain(threading.Thread):
    """A thread that stores the first `limit` bytes of a pipe and drops the rest, so that the writer never blocks."""

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
    mounts: bool = False,
) -> CompletedTool:
    """Run a tool on the platform's own input to its end, with this process's rights.

    `tick` is called about every 0.1 s and may raise, like `job.check_cancelled()`. On any exception the tool is killed
    and reaped first. If this process or thread dies, the kernel kills the tool. `tmp` is its HOME and directory for
    temporary files. `mounts`: it mounts file systems where it may; nothing stays mounted, however it ends. Raises
    BackendUnavailable if it is not installed.
    """
    for program in (argv[0], "setpriv"):
        _require_program(program)
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | _environment(str(tmp))
    own = _own_namespaces() if mounts else ()
    command = ["setpriv", "--pdeathsig", "KILL", "--", *own, *_ONCE_ANSWERED, *map(str, argv)]
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = _start(command, environment, (), theirs.fileno())

        def wait() -> None:
            _answer(ours, job)
            _wait(process, job, tick)

        return _finish(process, wait, max_stdout)


def run_confined_tool(
    argv: Sequence[str | Path],
    confinement: ToolConfinement,
    *,
    job: Job,
    environment: Mapping[str, str] | None = None,
    tick: Callable[[], None] | None = None,
    max_stdout: int = 64 << 10,
    max_file_bytes: int | None = None,
) -> CompletedTool:
    """Do what `run_tool` does, for input of others: the tool reaches only what `confinement` says.

    When this returns or raises, no process of the tool writes any more. Raise BackendUnavailable.
    """
    for program in (argv[0], *PROGRAMS):
        _require_program(program)
    inherited = {name: os.environ[name] for name in _PASSED_ON_CONFINED if name in os.environ}
    inside = inherited | _environment("/tmp") | {"PATH": _PATH_INSIDE, **(environment or {})}  # noqa: S108
    with confined_command(argv, confinement, max_file_bytes=max_file_bytes) as (command, descriptors):
        process = _start(command, inside, descriptors, subprocess.DEVNULL)
        return _finish(process, lambda: _wait(process, job, tick), max_stdout)


def _own_namespaces() -> tuple[str, ...]:
    """Return the command for as many as the host allows. Raise BackendUnavailable."""
    _require_program("unshare")
    return next(command for command in _NAMESPACES if not command or _is_allowed(command))


def _is_allowed(command: Sequence[str]) -> bool:
    try:
        done = subprocess.run([*command, "true"], capture_output=True, check=False, timeout=NAMESPACE_SECONDS)
    except subprocess.TimeoutExpired:
        raise BackendUnavailable("The host's program unshare did not end.") from None
    return done.returncode == 0


def _environment(tmp: str) -> dict[str, str]:
    return {"HOME": tmp, "TMPDIR": tmp, "XDG_RUNTIME_DIR": tmp, "LC_ALL": "C.UTF-8"}


def _require_program(program: str | Path) -> None:
    if shutil.which(str(program)) is None:
        raise BackendUnavailable(f"The host lacks the program {program}; run the doctor command.")


def _start(
    command: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int], stdin: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        pass_fds=descriptors,
        start_new_session=True,
        # The tools make the content of guests, whose modes must not depend on those of the platform's files.
        umask=0o022,
    )


def _finish(process: subprocess.Popen[bytes], wait: Callable[[], None], max_stdout: int) -> CompletedTool:
    assert process.stdout is not None  # noqa: S101 - PIPE was requested
    assert process.stderr is not None  # noqa: S101
    out, err = _Drain(process.stdout, max_stdout), _Drain(process.stderr, MAX_STDERR)
    try:
        wait()
    finally:
        if process.returncode is None:
            # Its group: bwrap's inner process does not yet die with the outer one while they are being set up.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        # A confined tool is killed by the kernel just after the process that was waited for: its pipes say when.
        out.join(_END_SECONDS)
        err.join(_END_SECONDS)
    return CompletedTool(process.returncode, bytes(out.data), err.data.decode(errors="replace"), out.truncated)


def _answer(asking: socket.socket, job: Job) -> None:
    """Let the tool begin. Return at once if its process has ended."""
    asking.settimeout(POLL_SECONDS)
    while True:
        job.check_cancelled()
        with suppress(TimeoutError):
            with suppress(BrokenPipeError, ConnectionResetError):
                if asking.recv(1):
                    asking.sendall(b"\n")
            return


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
