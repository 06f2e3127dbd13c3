"""The session to a guest: what the platform can do inside a running machine.

A session is asynchronous; every process that needs guests holds one `GuestPool`, which runs one event loop in a
thread of its own, keeps connections open between calls and closes those that were idle too long. Synchronous callers
use `GuestPool.call(...)`, asynchronous ones `await GuestPool.acall(...)`: both run the same coroutine on that loop.

The guest is hostile: names, sizes, modes and output are data. Nothing a guest says is ever used as a path on the host.
Paths are absolute inside the guest; `..` and symbolic links are resolved there, by the guest's kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GuestAddress:
    """Where a guest's control port is and which key it must show."""

    machine_id: str
    ip: str
    port: int
    host_key: str  # OpenSSH public key line; a guest that shows another is GuestUnreachable


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A finished command. `truncated`: more output came than was kept (the rest was read and dropped)."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    duration_ms: int
    truncated: bool
    timed_out: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory entry. Names are decoded with surrogateescape; `type` is file, directory, symlink or other.

    `is_virtual`: the kernel makes the content when it is read (/proc, /sys), so that `size` says nothing; only `stat`
    tells it.
    """

    name: str
    path: str
    type: str
    size: int
    mode: int
    modified: float  # seconds since the epoch
    target: str | None = None
    is_virtual: bool = False


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of the guest's writable disk."""

    total_bytes: int
    used_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """How a terminal's command ended: its exit code, or the name of the signal that killed it (`SIGKILL`).

    A signal that SSH has no name for is the exit code 128+N. Both None: hung up by `close` before the end was told.
    """

    exit_code: int | None
    signal: str | None


class Terminal(ABC):
    """A command on a terminal of the guest. Raises GuestUnreachable wherever the channel fails, nothing else.

    Belongs to the event loop that opened it; of another loop: `GuestPool.acall(address, lambda _: terminal.read())`.
    It outlives its session's `close`. Whoever opened it must `close` it, also where it ended by itself. What it says
    is data of a hostile guest: any bytes, escape sequences included.
    """

    @abstractmethod
    async def read(self) -> bytes:
        """The next output, at most 64 KiB; b"" at the end. Output nobody reads stops the command, not the memory."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Type `data`. Waits while the command does not read; after the command's end it is dropped."""

    @abstractmethod
    async def resize(self, cols: int, rows: int) -> None:
        """Set the size in characters, each taken into 1 to 1000; the foreground group gets SIGWINCH."""

    @abstractmethod
    async def wait(self) -> TerminalExit:
        """The command's end. It comes only after all output was read."""

    @abstractmethod
    async def close(self) -> None:
        """Hang up: the command's group is killed, a foreground job of a shell gets SIGHUP. May be called twice."""


def terminal_size(cols: int, rows: int) -> tuple[int, int]:
    """The size within what terminals and the programs on them bear."""
    return min(max(cols, 1), 1000), min(max(rows, 1), 1000)


class GuestSession(ABC):
    """One guest. Raises only vmbackend.errors: GuestUnreachable wherever the channel fails, plus what is named."""

    @abstractmethod
    async def execute(
        self,
        command: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        user: str | None = None,
        stdin: bytes = b"",
        timeout: float = 30.0,
        max_output: int = 1 << 20,
    ) -> ExecResult:
        """Run a command to its end. A string is run by `sh -c`.

        At `timeout` seconds the whole process group is killed: `timed_out` with exit code 124. At most `max_output`
        bytes of each stream are kept. A command killed by signal N has exit code 128+N. The machine's configured
        environment is the base of `env`. Raises GuestCommandInvalid (no such program, user or directory).
        """

    @abstractmethod
    async def open_terminal(
        self,
        command: Sequence[str] | None = None,
        *,
        cols: int = 120,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        user: str | None = None,
    ) -> Terminal:
        """Start a command on a terminal of its own (`TERM` is xterm-256color); size in characters.

        None: the user's shell of the image's /etc/passwd, else /bin/bash, /bin/sh, else the kit's; no login shell.
        Raises GuestCommandInvalid (no such program, user or directory); nothing is left behind then.
        """

    @abstractmethod
    async def list_directory(self, path: str, *, limit: int = 10_000, after: str = "") -> tuple[list[Entry], bool]:
        """The first `limit` entries by name past the name `after`, and whether there are more.

        Raises GuestPathNotFound, GuestPathInvalid (no directory, or names of more than 8 MiB).
        """

    @abstractmethod
    async def stat(self, path: str) -> Entry:
        """Follows symbolic links. Raises GuestPathNotFound."""

    @abstractmethod
    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Chunks of a regular file (at most 256 KiB each), several requests in flight, constant memory.

        A file that shrinks meanwhile ends early. One that the kernel makes up is read at once and given where it has
        at most 16 MiB. Raises GuestPathNotFound, GuestPathInvalid (no regular file, one that the guest does not let
        be read).
        """

    @abstractmethod
    async def write(self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None) -> int:
        """Write beside and rename: readers see the old file or the whole new one. Returns the size in bytes.

        Missing parents are made and stay; an existing file's mode and owner are kept where `mode` is None, its other
        hard links keep the old content; through a symbolic link its target is written. On any failure the old file
        stands and the partial one is removed, by the guest where this process or the connection died (if the guest
        itself dies, a file with a name beginning `.partial-` stays). Raises GuestPathInvalid (a directory or anything
        else that is no file, a link that leads nowhere, a read-only place), GuestDiskFull.
        """

    @abstractmethod
    async def disk_usage(self) -> DiskUsage:
        """Of the writable disk, not of the joined root."""

    @abstractmethod
    async def set_ssh(self, enabled: bool, keys: Sequence[str]) -> None:
        """Switch the SSH server for users, on port 22 of the guest, until the guest's next start.

        On: exactly `keys` (OpenSSH public key lines without options) are let in from now on; returns when the server
        listens, connections that are open stay. Off: nothing listens, and all its sessions are ended; `keys` are
        ignored. Either twice succeeds. Raises GuestCommandInvalid (a line that is no key; a program of the guest holds
        the port, then the server goes on trying).
        """

    @abstractmethod
    async def ssh_connections(self) -> int:
        """How many connections to port 22 of the guest are established, logged in or not."""

    @abstractmethod
    async def sync(self) -> None:
        """Flush the guest's dirty pages to its disk."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection; the session may be used again and reconnects."""
