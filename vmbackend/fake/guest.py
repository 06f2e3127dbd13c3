"""The fake driver's guests: directories of this host. For tests only.

Commands ARE EXECUTED ON THIS HOST with the rights of this process; only their working directory is the machine's. File
operations stay within the directory: symbolic links in it are resolved as if it were the root.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import pwd
import secrets
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Unpack

from vmbackend.driver import MachineState
from vmbackend.errors import (
    BackendUnavailable,
    GuestCommandInvalid,
    GuestPathInvalid,
    GuestPathNotFound,
    GuestUnreachable,
)
from vmbackend.fake import trees
from vmbackend.fake.commands import archive_directory, archive_file, finish_command, run_asking, stream_command
from vmbackend.fake.no_hold import no_hold
from vmbackend.fake.store import Domain, FakeStore
from vmbackend.fake.workloads import WORKLOADS_FILE, run_helper
from vmbackend.guest.asking import Answer
from vmbackend.guest.hold import HoldClient, HoldSettings
from vmbackend.guest.hold.tasks import HeldTasks
from vmbackend.guest.hold.transport import OpenTransport
from vmbackend.guest.listing import check_path
from vmbackend.guest.output import StreamedOutput, StreamOptions
from vmbackend.guest.records import ssh_key_file
from vmbackend.guest.session import DiskUsage, Entry, ExecResult, GuestAddress, GuestSession, SearchTools, TreeEntry

_CHUNK = 64 * 1024
# Next to a machine's disk: the keys that its users' SSH accepts (absent: off), and the number of connections to report.
SSH_FILE = "ssh"
SSH_CONNECTIONS_FILE = "ssh_connections"
# Likewise: what a guest sends in place of the archive of any directory, as a hostile one may.
ARCHIVE_FILE = "archive.tar"


def fake_sessions(root: Path) -> Callable[[GuestAddress], GuestSession]:
    """Return a session factory for the guests of `FakeDriver(root)`."""
    return lambda address: FakeGuestSession(root, address.machine_id)


class FakeGuestSession(GuestSession):
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
        self._require_ready()
        opener = type(self).hold_of
        if self._hold is None:
            self._hold = HoldClient(no_hold if opener is None else opener(self._id), HoldSettings())
        return self._hold.tasks

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

    async def list_directory(self, path: str, *, limit: int = 10_000, after: str = "") -> tuple[list[Entry], bool]:
        place = self._find(path)
        if not place.is_dir():
            raise GuestPathInvalid(f"{path!r} is not a directory.")
        names = trees.names_after(place, after)
        entries = [trees.entry_of(place / name, f"{path.rstrip('/')}/{name}") for name in names[:limit]]
        return entries, len(names) > limit

    async def stat(self, path: str) -> Entry:
        return trees.entry_of(self._find(path), path)

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        place = self._find(path)
        if not place.is_file():
            raise GuestPathInvalid(f"{path!r} is not a regular file.")
        with place.open("rb") as handle:
            handle.seek(offset)
            left = length
            while block := handle.read(_CHUNK if left is None else min(_CHUNK, left)):
                left = None if left is None else left - len(block)
                yield block

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        replace: bool = True,
        expected: str | None = None,
    ) -> int:
        self._require_ready()
        check_path(path)
        if not replace:
            trees.require_absent(self._named(path), path)
        folder, name = posixpath.split(path)
        if name in ("", ".", ".."):
            raise GuestPathInvalid(f"{path!r} names a directory.")
        target = trees.resolve_path(self._disk, path)
        if (trees.resolve_path(self._disk, folder) / name).is_symlink() and not target.exists():
            raise GuestPathInvalid(f"{path!r} is a symbolic link with a missing target.")
        if target.exists() and not target.is_file():
            raise GuestPathInvalid(f"{path!r} is not a regular file.")
        permissions = mode if mode is not None else (target.stat().st_mode if target.exists() else 0o644)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise GuestPathInvalid(f"A part of {path!r} is not a directory.") from error
        beside = target.parent / f".partial-{secrets.token_hex(8)}"
        size = 0
        try:
            with beside.open("xb") as handle:
                async for chunk in chunks:
                    size += handle.write(chunk)
            beside.chmod(stat.S_IMODE(permissions))
            self._require_ready()
            await trees.move_file(beside, target, path, replace=replace, expected=expected)
        except FileNotFoundError as error:
            raise GuestPathInvalid(f"The directory of {path!r} is gone.") from error
        finally:
            beside.unlink(missing_ok=True)
        return size

    async def walk(
        self, path: str, *, depth: int, limit: int, ignore: Sequence[str] = ()
    ) -> tuple[list[TreeEntry], bool]:
        return trees.walk_tree(self._find(path), path, depth=depth, limit=limit, ignore=ignore)

    async def describe_files(self, path: str, names: Sequence[str]) -> list[TreeEntry]:
        return trees.describe_files(self._find(path), names)

    async def search_tools(self, *, again: bool = False) -> SearchTools:
        self._require_ready()
        if (program := shutil.which("rg")) is None:
            raise BackendUnavailable("This host has no ripgrep.")
        return SearchTools((program,), ("/bin/sh",))

    async def hash_files(self, path: str, names: Sequence[str]) -> dict[str, str]:
        return trees.hash_files(self._find(path), names)

    async def archive(self, path: str, said: bytearray | None = None) -> AsyncIterator[bytes]:
        place = self._find(path)
        if not place.is_dir():
            raise GuestPathInvalid(f"{path!r} is not a directory.")
        given, begun = self._disk.with_name(ARCHIVE_FILE), self._require_ready().ready_at
        source = (
            archive_file(given) if given.exists() else archive_directory(place, bytearray() if said is None else said)
        )
        async with aclosing(source) as blocks:
            async for block in blocks:
                if self._require_ready().ready_at != begun:
                    raise GuestUnreachable("The machine has been started again.")
                if block:
                    yield block

    async def make_directory(self, path: str) -> None:
        self._require_ready()
        trees.make_directory(self._named(path), path)

    async def remove(self, path: str) -> None:
        self._require_ready()
        trees.remove_tree(self._named(path), path)

    async def rename(self, source: str, destination: str) -> None:
        self._require_ready()
        trees.rename_path(self._named(source), self._named(destination), source, destination)

    async def disk_usage(self) -> DiskUsage:
        total = self._require_ready().spec.disk_mb << 20
        files = (Path(top) / name for top, _, names in os.walk(self._disk) for name in names)
        used = sum(file.lstat().st_size for file in files)
        return DiskUsage(total_bytes=total, used_bytes=used, available_bytes=max(total - used, 0))

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

    def _require_ready(self) -> Domain:
        domain = self._store.domain(self._id)
        ready = domain is not None and domain.ready_at is not None and domain.ready_at <= time.time()
        if domain is None or domain.state is not MachineState.RUNNING or not ready:
            raise GuestUnreachable("The machine's control channel does not answer.")
        return domain

    def _find(self, path: str) -> Path:
        """Return the path on the host of an existing file. Raise GuestPathNotFound."""
        self._require_ready()
        check_path(path)
        place = trees.resolve_path(self._disk, path)
        if not place.exists():
            raise GuestPathNotFound(f"There is no {path!r} inside the machine.")
        return place

    def _named(self, path: str) -> Path:
        """Return the path on the host of a name, which may be a link. Raise GuestPathInvalid if it ends in none."""
        check_path(path)
        folder, name = posixpath.split(path.rstrip("/"))
        if name in ("", ".", ".."):
            raise GuestPathInvalid(f"{path!r} does not end in a name.")
        return trees.resolve_path(self._disk, folder) / name

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
