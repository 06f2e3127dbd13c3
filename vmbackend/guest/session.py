"""The session to a guest: the platform's operations inside a running machine.

Sessions are asynchronous; every process that needs guests has one `GuestPool`, which runs one event loop in a dedicated
thread, keeps connections open between calls and closes idle ones. Synchronous callers use `GuestPool.call(...)`,
asynchronous ones `await GuestPool.acall(...)`: both run the same coroutine on that loop.

The guest is hostile: names, sizes, modes and output are untrusted. They are never used as paths on the host.
Paths are absolute inside the guest; `..` and symbolic links are resolved there, by the guest's kernel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GuestAddress:
    """A guest's control port and its host key."""

    machine_id: str
    ip: str
    port: int
    host_key: str  # OpenSSH public key line; another key raises GuestUnreachable


@dataclass(frozen=True, slots=True)
class ExecResult:
    """A finished command. `truncated`: output exceeded the limit (the rest was read and dropped)."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    duration_ms: int
    truncated: bool
    timed_out: bool


@dataclass(frozen=True, slots=True)
class Entry:
    """One directory entry. Names are decoded with surrogateescape; `type` is file, directory, symlink or other.

    `is_virtual`: the kernel generates the content when it is read (/proc, /sys), so that `size` is meaningless; only
    set by `stat`.
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

    def limited_to(self, size: int) -> DiskUsage:
        """What of a guest's report can be true of a disk of `size` bytes."""
        total = max(0, min(self.total_bytes, size))
        used = max(0, min(self.used_bytes, total))
        return DiskUsage(total, used, max(0, min(self.available_bytes, total - used)))


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """How a terminal's command ended: its exit code, or the name of the signal that killed it (`SIGKILL`).

    A signal that SSH has no name for is the exit code 128+N. Both None: closed by `close` before the end was reported.
    """

    exit_code: int | None
    signal: str | None


class Terminal(ABC):
    """A command on a terminal of the guest. Raises GuestUnreachable wherever the channel fails, nothing else.

    Belongs to the event loop that opened it; from another loop: `GuestPool.acall(address, lambda _: terminal.read())`.
    It outlives its session's `close`. The opener must `close` it, also after it ended by itself. Output is data of a
    hostile guest: any bytes, escape sequences included.
    """

    @abstractmethod
    async def read(self) -> bytes:
        """The next output, at most 64 KiB; b"" at the end. Unread output blocks the command and uses limited memory."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Write input. Waits while the command does not read; dropped after the command's end."""

    @abstractmethod
    async def resize(self, cols: int, rows: int) -> None:
        """Set the size in characters, each clamped to 1..1000; the foreground group gets SIGWINCH."""

    @abstractmethod
    async def wait(self) -> TerminalExit:
        """Wait for the command's end, which is reported only after all output was read."""

    @abstractmethod
    async def close(self) -> None:
        """Hang up: the command's group is killed, a foreground job of a shell gets SIGHUP. Idempotent."""


def terminal_size(cols: int, rows: int) -> tuple[int, int]:
    """The size, clamped to what terminal programs support."""
    return min(max(cols, 1), 1000), min(max(rows, 1), 1000)


class GuestSession(ABC):
    """One guest. Raises only vmbackend.errors: GuestUnreachable if the channel fails, and those documented."""

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
        """Run a command to its end; `timeout` in seconds. A string is run by `sh -c`.

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
        Raises GuestCommandInvalid (no such program, user or directory); nothing remains then.
        """

    @abstractmethod
    async def list_directory(self, path: str, *, limit: int = 10_000, after: str = "") -> tuple[list[Entry], bool]:
        """The first `limit` entries by name after the name `after`, and whether there are more.

        Fewer, but at least one, if their paths and targets have more than 4 MiB together. Raises GuestPathNotFound,
        GuestPathInvalid (not a directory, or names of more than 8 MiB).
        """

    @abstractmethod
    async def stat(self, path: str) -> Entry:
        """The entry at `path`; follows symbolic links. Raises GuestPathNotFound."""

    @abstractmethod
    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Chunks of a regular file (at most 256 KiB each), several requests in flight, constant memory.

        A file that shrinks during the transfer ends early. A virtual file is read completely first, up to 16 MiB.
        Raises GuestPathNotFound, GuestPathInvalid (not a regular file, or not readable).
        """

    @abstractmethod
    async def write(self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None) -> int:
        """Write atomically: readers see the old file or the complete new one. Returns the size in bytes once the file
        and its name are on the disk.

        Missing parents are created and stay; an existing file's mode and owner are kept if `mode` is None, its other
        hard links keep the old content; through a symbolic link its target is written. On any failure the old file
        stays and the partial one is removed, by the guest if this process or the connection died, at its next start if
        the guest itself died. Raises GuestPathInvalid (a directory or anything else
        that is not a regular file, a link with a missing target, a read-only file system), GuestDiskFull. If the
        channel fails after the rename, GuestUnreachable is raised and the new file may be there.
        """

    @abstractmethod
    async def disk_usage(self) -> DiskUsage:
        """Usage of the writable disk, not of the overlay."""

    @abstractmethod
    async def set_ssh(self, enabled: bool, keys: Sequence[str]) -> None:
        """Enable or disable the SSH server for users, on port 22 of the guest, until the guest's next start.

        Enable: accepts exactly `keys` (OpenSSH public key lines without options) from now on; returns when the server
        listens; open connections stay. Disable: ends the server and all its sessions; `keys` are ignored. Idempotent.
        Raises GuestCommandInvalid (an invalid key line; port 22 is used by a program of the guest, then the server
        keeps trying).
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
