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
from typing import Unpack

from .asking import Answer
from .hold.tasks import HeldTasks
from .output import StreamedOutput, StreamOptions

# As a command's user: the image's, in its working directory unless another one is given. A machine with an older kit
# takes it for root.
IMAGE_USER = ""
# Expected of a file whose content does not matter; such a write comes after those that expect some content, or before
# them.
ANY_CONTENT = "any"


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
class TreeEntry:
    """An entry below a directory. `path` is relative to it, decoded with surrogateescape.

    `type` is directory, or file for anything else; of a symbolic link, what it leads to (without a target: file).
    `is_regular`: reading it neither blocks nor affects a device.
    """

    path: str
    type: str
    size: int
    modified: float  # seconds since the epoch
    is_regular: bool
    target: str | None = None  # of a symbolic link


@dataclass(frozen=True, slots=True)
class SearchTools:
    """Beginnings of command lines: of ripgrep, and of a POSIX shell that every image has."""

    program: tuple[str, ...]
    shell: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes of the guest's writable disk."""

    total_bytes: int
    used_bytes: int
    available_bytes: int

    def limited_to(self, size: int) -> DiskUsage:
        """Return the part of a guest's report that can be true for a disk of `size` bytes."""
        total = max(0, min(self.total_bytes, size))
        used = max(0, min(self.used_bytes, total))
        return DiskUsage(total, used, max(0, min(self.available_bytes, total - used)))


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
        stop_after: tuple[bytes, int] | None = None,
        grace: float = 0.0,
    ) -> ExecResult:
        """Run a command to its end; `timeout` in seconds. A string is run by `sh -c`.

        At `timeout` seconds the whole process group is killed: `timed_out` with exit code 124. With `grace` (seconds,
        at most 4) it gets SIGTERM first, also if this process or the connection ends. At most `max_output`
        bytes of each stream are kept. A command killed by signal N has exit code 128+N. The machine's configured
        environment is the base of `env`. Without a user it runs as root, in root's home; with any user the directory
        is the image's, else the user's home.

        `stop_after`, a separator and a number: the command is ended, with code 0 and `truncated`, when its output has
        as many separators, or more than `max_output` bytes. Raise GuestCommandInvalid (no such program, user or
        directory).
        """

    @abstractmethod
    def execute_streamed(self, command: Sequence[str] | str, **options: Unpack[StreamOptions]) -> StreamedOutput:
        """Do what `execute` does, but yield the output as it comes, and its exit code at last; the guest waits while
        none is taken.

        The first part comes once the command runs; it is empty if nothing was written for START_SECONDS. A reader
        that stops ends the command, with `grace`. Raise what `execute` does, GuestCommandInvalid before the first
        part if the guest says so in START_SECONDS, and GuestOutputNotRead 5 seconds after the timeout.
        """

    async def execute_held(
        self,
        command: Sequence[str] | str,
        *,
        env: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        user: str | None = None,
        timeout: float = 30.0,
        max_output: int = 1 << 20,
    ) -> ExecResult:
        """Do what `execute` does, by a process that the guest keeps for that if it has one: for many short
        commands. Without a user it runs as the image's.
        """
        user = user or IMAGE_USER
        return await self.execute(
            command, env=env, working_dir=working_dir, user=user, timeout=timeout, max_output=max_output
        )

    @abstractmethod
    async def open_tasks(self) -> HeldTasks:
        """Return the tasks of the guest, for the event loop of the session and as long as it is used. Each call of them
        raises HoldUnsupported if the machine's kit has none.
        """

    @abstractmethod
    async def execute_answering(
        self,
        command: Sequence[str],
        *,
        answer: Answer,
        env: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        timeout: float = 30.0,
        grace: float = 0.0,
        max_output: int = 1 << 20,
    ) -> ExecResult:
        """Do what `execute` does, for a command whose programs ask for passwords or signatures: `answer` says
        what they get.

        They ask over a socket of this command alone, which SSH_AUTH_SOCK names and which is gone with it: as clients of
        an agent of SSH keys, or through `askpass_program`. Its standard output goes to its standard error, and it has
        no input. Its connection is not used again.
        """

    @property
    @abstractmethod
    def askpass_program(self) -> str:
        """Return a path in the guest, for GIT_ASKPASS or SSH_ASKPASS of a command of `execute_answering`."""

    @abstractmethod
    async def list_directory(self, path: str, *, limit: int = 10_000, after: str = "") -> tuple[list[Entry], bool]:
        """Return the first `limit` entries by name after the name `after`, and whether there are more.

        Names are ordered by their bytes; those that the platform makes are left out. Fewer, but at least one, if their
        paths and targets have more than 4 MiB together. Raise GuestPathNotFound, GuestPathInvalid (no directory).
        """

    @abstractmethod
    async def walk(
        self, path: str, *, depth: int, limit: int, ignore: Sequence[str] = ()
    ) -> tuple[list[TreeEntry], bool]:
        """Return the entries below a directory, each before those below it, by name; and whether there are more than
        `limit`.

        `depth` 1: its own entries only. `ignore`: patterns in the syntax of gitignore; what they match is neither
        listed nor entered. Symbolic links and other file systems are not entered. Entries with very long paths count
        for more. Raise GuestPathNotFound, GuestPathInvalid (not a directory), DeadlineExceeded.
        """

    @abstractmethod
    async def describe_files(self, path: str, names: Sequence[str]) -> list[TreeEntry]:
        """Return the entries of these paths below a directory, in their order; those that are gone are left out."""

    @abstractmethod
    async def search_tools(self, *, again: bool = False) -> SearchTools:
        """Return ripgrep, which is brought into the guest's memory if it is not there.

        A session that has found it there does not look again, unless it is asked to: it may be gone since then.

        Raise BackendUnavailable (this host has none), GuestDiskFull (no memory).
        """

    @abstractmethod
    async def hash_files(self, path: str, names: Sequence[str]) -> dict[str, str]:
        """Return SHA-256 in hexadecimal of regular files below a directory, by name, of those that could be read in
        time.
        """

    @abstractmethod
    async def stat(self, path: str) -> Entry:
        """Return the entry at `path`; follows symbolic links. Raise GuestPathNotFound."""

    @abstractmethod
    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """Yield chunks of a regular file (at most 256 KiB each), several requests in flight, constant memory.

        A file that shrinks during the transfer ends early. A virtual file is read completely first, up to 16 MiB.
        Raise GuestPathNotFound, GuestPathInvalid (not a regular file, or not readable).
        """

    @abstractmethod
    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        replace: bool = True,
        expected: str | None = None,
    ) -> int:
        """Write atomically: readers see the old file or the complete new one. Return the size in bytes once the file
        and its name are on the disk.

        Missing parents are created and stay; an existing file's mode and owner are kept if `mode` is None, its other
        hard links keep the old content; through a symbolic link its target is written. On any failure the old file
        stays and the partial one is removed, by the guest if this process or the connection died, at its next start if
        the guest itself died. Raise GuestPathInvalid (a directory or anything else
        that is not a regular file, a link with a missing target, a read-only file system), GuestDiskFull. If the
        channel fails after the rename, GuestUnreachable is raised and the new file may be there.

        Without `replace` the path must not exist, be it a link without a target: of two such writes at once one raises
        GuestPathExists.

        `expected`: the SHA-256, in hexadecimal, of what the file must have when it is replaced; else GuestFileChanged
        is raised. All writes with `expected`, or with ANY_CONTENT, follow one another, those of other processes too:
        none is lost. (Not in a machine that was started with an older kit.)
        """

    @abstractmethod
    def archive(self, path: str, said: bytearray | None = None) -> AsyncIterator[bytes]:
        """Yield a directory with all that it contains, as a tar archive that the guest makes while it is read.

        `said` gets the first 64 KiB of what the guest's program says of what it leaves out (`left_out.py`).

        Names in it are relative to the directory and begin with `./`; symbolic links are not followed. What the guest
        sends may be anything: whether the archive is whole is the receiver's to check, as what cannot be read is left
        out and a file that shrinks ends it. A reader that stops ends the guest's program. Raise GuestPathNotFound,
        GuestPathInvalid (not a directory), DeadlineExceeded (more than an hour).
        """

    @abstractmethod
    async def make_directory(self, path: str) -> None:
        """Create a directory and its missing parents; return when they are on the disk.

        Raise GuestPathExists, GuestPathInvalid, GuestDiskFull; parents that were created stay.
        """

    @abstractmethod
    async def remove(self, path: str) -> None:
        """Remove a file, a link, or a directory with all that it contains; return when the disk knows it.

        Raise GuestPathNotFound, GuestPathInvalid (the root, a mount point, read-only), DeadlineExceeded; of a
        directory a part may be gone then.
        """

    @abstractmethod
    async def rename(self, source: str, destination: str) -> None:
        """Rename, or move, a file, a link or a directory; return when the disk knows the new name.

        Atomic within one file system; between two, and for directories of the machine's image, what is moved is copied
        and then removed, and a failure may leave a part of the copy. Raise GuestPathExists (the destination),
        GuestPathNotFound (the source, or the destination's parent), GuestPathInvalid, DeadlineExceeded.
        """

    @abstractmethod
    async def disk_usage(self) -> DiskUsage:
        """Return usage of the writable disk, not of the overlay."""

    @abstractmethod
    async def set_ssh(self, enabled: bool, keys: Sequence[str]) -> None:
        """Enable or disable the SSH server for users, on port 22 of the guest, until the guest's next start.

        Enable: accepts exactly `keys` (OpenSSH public key lines without options) from now on; return when the server
        listens; open connections stay. Disable: ends the server and all its sessions; `keys` are ignored. Idempotent.
        Raise GuestCommandInvalid (an invalid key line; port 22 is used by a program of the guest, then the server
        keeps trying).
        """

    @abstractmethod
    async def ssh_connections(self) -> int:
        """Return how many connections to port 22 of the guest are established, logged in or not."""

    @abstractmethod
    async def kit_helper(self, words: str, stdin: bytes, max_output: int = 4096) -> bytes:
        """Return the output of a command of the kit's own (`guest WORDS`, README.md), at most `max_output` bytes.

        Raise GuestCommandInvalid with the kit's message if it refuses, GuestKitOutdated if its kit has no such
        command.
        """

    @abstractmethod
    async def sync(self) -> None:
        """Flush the guest's dirty pages to its disk."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection; the session may be used again and reconnects."""
