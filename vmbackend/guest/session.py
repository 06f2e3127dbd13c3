"""The session to a guest: the platform's operations inside a running machine.

Sessions are asynchronous; every process that needs guests has one `GuestPool`, which runs one event loop in a dedicated
thread, keeps connections open between calls and closes idle ones. Synchronous callers use `GuestPool.call(...)`,
asynchronous ones `await GuestPool.acall(...)`: both run the same coroutine on that loop.

The guest is hostile: names, sizes, modes and output are untrusted. They are never used as paths on the host.
Paths are absolute inside the guest; `..` and symbolic links are resolved there, by the guest's kernel.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from .asking import Answer
from .file_session import ANY_CONTENT, DiskUsage, Entry, FileSession, TreeEntry
from .output import StreamedOutput, StreamOptions

if TYPE_CHECKING:
    from .hold.client import HoldClient

__all__ = [
    "ANY_CONTENT", "IMAGE_USER", "DiskUsage", "Entry", "ExecResult", "GuestAddress", "GuestSession", "SearchTools",
    "TreeEntry",
]  # fmt: skip

# As a command's user: the image's, in its working directory unless another one is given. A machine with an older kit
# takes it for root.
IMAGE_USER = ""


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
class SearchTools:
    """Beginnings of command lines: of ripgrep, and of a POSIX shell that every image has."""

    program: tuple[str, ...]
    shell: tuple[str, ...]


class GuestSession(FileSession):
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
    async def open_held(self) -> HoldClient:
        """Return a client of what the guest keeps (tasks, terminals, watches, connections to its loopback), for the
        event loop of the session and as long as it is used. Each call raises HoldUnsupported if the machine's kit keeps
        nothing.
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

    @property
    @abstractmethod
    def busybox(self) -> str:
        """Return the path in the guest of the kit's busybox, for commands of the platform's own."""

    @abstractmethod
    async def search_tools(self, *, again: bool = False) -> SearchTools:
        """Return ripgrep, which is brought into the guest's memory if it is not there.

        A session that has found it there does not look again, unless it is asked to: it may be gone since then.

        Raise BackendUnavailable (this host has none), GuestDiskFull (no memory).
        """

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
    async def find_search_tools(self) -> SearchTools | None:
        """Return ripgrep if the guest has it in its memory; it is not brought there. Raise BackendUnavailable."""

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
