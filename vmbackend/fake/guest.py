"""The fake driver's guests: directories of this host. For tests only.

Commands ARE EXECUTED ON THIS HOST with the rights of this process; only their working directory is the machine's. File
operations stay within the directory: symbolic links in it are resolved as if it were the root.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Unpack

from vmbackend.errors import (
    BackendUnavailable,
    GuestCommandInvalid,
)
from vmbackend.fake import trees
from vmbackend.fake.commands import finish_command, run_asking, stream_command
from vmbackend.fake.files import FakeFiles
from vmbackend.fake.no_hold import no_hold
from vmbackend.fake.store import Domain, FakeStore
from vmbackend.fake.workloads import WORKLOADS_FILE, run_helper
from vmbackend.guest.asking import Answer
from vmbackend.guest.hold import HoldClient, HoldSettings
from vmbackend.guest.hold.connections import HeldConnections
from vmbackend.guest.hold.tasks import HeldTasks
from vmbackend.guest.hold.transport import OpenTransport
from vmbackend.guest.output import StreamedOutput, StreamOptions
from vmbackend.guest.records import ssh_key_file
from vmbackend.guest.session import ExecResult, GuestAddress, GuestSession, SearchTools

# Next to a machine's disk: the keys that its users' SSH accepts (absent: off), and the number of connections to report.
SSH_FILE = "ssh"
SSH_CONNECTIONS_FILE = "ssh_connections"


def fake_sessions(root: Path) -> Callable[[GuestAddress], GuestSession]:
    """Return a session factory for the guests of `FakeDriver(root)`."""
    return lambda address: FakeGuestSession(root, address.machine_id)


class FakeGuestSession(FakeFiles):
    """One fake machine's directory. GuestUnreachable unless the machine runs.

    `helper`: the compiled guest program, beside a link `askpass` to it, if a test has one.
    """

    helper: Path | None = None
    # How a test reaches the hold of a machine, if it has one.
    hold_of: Callable[[str], OpenTransport] | None = None

    def __init__(self, root: Path, machine_id: str) -> None:
        self._store = FakeStore(root)
        self._id = machine_id
        self._hold: HoldClient | None = None
        self._disk = self._store.directory(machine_id) / "disk"

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
        domain = self._require_ready()
        _check_user(user)
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        process = await self._start(words, domain, env or {}, self._cwd(working_dir))
        return await finish_command(
            process, stdin, timeout=timeout, grace=grace, max_output=max_output, stop_after=stop_after
        )

    async def execute_streamed(self, command: Sequence[str] | str, **options: Unpack[StreamOptions]) -> StreamedOutput:
        domain = self._require_ready()
        _check_user(options.get("user"))
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        env, cwd = options.get("env") or {}, self._cwd(options.get("working_dir"))
        async with aclosing(stream_command(await self._start(words, domain, env, cwd), options)) as parts:
            async for part in parts:
                yield part

    async def open_tasks(self) -> HeldTasks:
        return self._hold_client().tasks

    async def open_connections(self) -> HeldConnections:
        return self._hold_client().connections

    def _hold_client(self) -> HoldClient:
        self._require_ready()
        opener = type(self).hold_of
        if self._hold is None:
            self._hold = HoldClient(no_hold if opener is None else opener(self._id), HoldSettings())
        return self._hold

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
        domain = self._require_ready()
        if self.helper is None:
            raise BackendUnavailable("The fake driver's guests have no helper that asks.")
        home = {"HOME": str(self._disk / "root")}
        return await run_asking(
            self.helper,
            command,
            answer=answer,
            env={**_base_env(domain), **home, **(env or {})},
            cwd=self._cwd(working_dir),
            timeout=timeout,
            grace=grace,
            max_output=max_output,
        )

    @property
    def askpass_program(self) -> str:
        return str((self.helper or Path("/none")).with_name("askpass"))

    @property
    def busybox(self) -> str:
        return shutil.which("busybox") or "busybox"

    async def search_tools(self, *, again: bool = False) -> SearchTools:
        self._require_ready()
        if (program := shutil.which("rg")) is None:
            raise BackendUnavailable("This host has no ripgrep.")
        return SearchTools((program,), ("/bin/sh",))

    async def find_search_tools(self) -> SearchTools | None:
        self._require_ready()
        program = shutil.which("rg")
        return None if program is None else SearchTools((program,), ("/bin/sh",))

    async def set_ssh(self, enabled: bool, keys: Sequence[str]) -> None:
        self._require_ready()
        try:
            lines = ssh_key_file(keys) if enabled else b""
        except ValueError as error:
            raise GuestCommandInvalid(f"An SSH key cannot be used: {error}.") from error
        place = self._disk.with_name(SSH_FILE)
        if enabled:
            # At once: another process may read it.
            beside = place.with_name(f".{secrets.token_hex(4)}")
            beside.write_bytes(lines)
            beside.replace(place)
        else:
            place.unlink(missing_ok=True)

    async def ssh_connections(self) -> int:
        self._require_ready()
        with suppress(FileNotFoundError):
            return int(self._disk.with_name(SSH_CONNECTIONS_FILE).read_text())
        return 0

    async def kit_helper(self, words: str, stdin: bytes, max_output: int = 4096) -> bytes:
        domain = self._require_ready()
        booted = [workload.name for workload in domain.spec.boot.workloads]
        return run_helper(self._disk.with_name(WORKLOADS_FILE), booted, words, stdin)

    async def sync(self) -> None:
        self._require_ready()

    async def close(self) -> None:
        hold, self._hold = self._hold, None
        if hold is not None:
            await hold.close()

    def _cwd(self, working_dir: str | None) -> Path:
        place = trees.resolve_path(self._disk, working_dir or "/")
        if not place.is_dir():
            raise GuestCommandInvalid(f"There is no directory {working_dir!r}.")
        return place

    async def _start(
        self, words: list[str], domain: Domain, env: Mapping[str, str], cwd: Path
    ) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *words,
                cwd=cwd,
                env={**_base_env(domain), **env},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError, TypeError) as error:
            code = 127 if isinstance(error, FileNotFoundError) else 126
            raise GuestCommandInvalid("The command cannot be started.", code) from error


def _base_env(domain: Domain) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), **domain.spec.boot.env}


def _check_user(user: str | None) -> None:
    """Check that the user exists; commands run as this process's user."""
    try:
        if user:
            pwd.getpwnam(user)
    except (KeyError, ValueError) as error:
        raise GuestCommandInvalid(f"There is no user {user!r}.") from error
