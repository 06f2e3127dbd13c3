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
import signal
import stat
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from vmbackend.driver import MachineState
from vmbackend.errors import (
    GuestCommandInvalid,
    GuestPathInvalid,
    GuestPathNotFound,
    GuestUnreachable,
)
from vmbackend.fake.store import Domain, FakeStore
from vmbackend.fake.terminal import open_terminal
from vmbackend.guest.communicate import BoundedBuffer
from vmbackend.guest.connection import TERMINAL_TYPE
from vmbackend.guest.listing import check_path
from vmbackend.guest.records import ssh_key_file
from vmbackend.guest.session import DiskUsage, Entry, ExecResult, GuestAddress, GuestSession, Terminal

_CHUNK = 64 * 1024
_MAX_LINKS = 40
# Next to a machine's disk: the keys that its users' SSH accepts (absent: off), and the number of connections to report.
SSH_FILE = "ssh"
SSH_CONNECTIONS_FILE = "ssh_connections"


def fake_sessions(root: Path) -> Callable[[GuestAddress], GuestSession]:
    """A session factory for the guests of `FakeDriver(root)`."""
    return lambda address: FakeGuestSession(root, address.machine_id)


class FakeGuestSession(GuestSession):
    """One fake machine's directory. GuestUnreachable unless the machine runs."""

    def __init__(self, root: Path, machine_id: str) -> None:
        self._store = FakeStore(root)
        self._id = machine_id
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
    ) -> ExecResult:
        domain = self._require_ready()
        _check_user(user)
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        started = time.monotonic()
        process = await self._start(words, domain, env or {}, self._cwd(working_dir))
        out, err = BoundedBuffer(max_output), BoundedBuffer(max_output)
        timed_out = False
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(
                    _feed(process.stdin, stdin),
                    _drain(process.stdout, out),
                    _drain(process.stderr, err),
                    process.wait(),
                )
        except TimeoutError:
            timed_out = True
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        code = await process.wait()
        return ExecResult(
            exit_code=124 if timed_out else (code if code >= 0 else 128 - code),
            stdout=bytes(out.data),
            stderr=bytes(err.data),
            duration_ms=int((time.monotonic() - started) * 1000),
            truncated=out.truncated or err.truncated,
            timed_out=timed_out,
        )

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
        domain = self._require_ready()
        _check_user(user)
        whole = {**_base_env(domain), "TERM": TERMINAL_TYPE, **(env or {})}
        cwd = self._cwd(working_dir)
        return await open_terminal(
            command, size=(cols, rows), env=whole, cwd=cwd, user=user, require_ready=self._require_ready
        )

    async def list_directory(self, path: str, *, limit: int = 10_000, after: str = "") -> tuple[list[Entry], bool]:
        place = self._find(path)
        if not place.is_dir():
            raise GuestPathInvalid(f"{path!r} is not a directory.")
        names = sorted(found.name for found in place.iterdir() if found.name > after)
        entries = [_entry(place / name, f"{path.rstrip('/')}/{name}") for name in names[:limit]]
        return entries, len(names) > limit

    async def stat(self, path: str) -> Entry:
        return _entry(self._find(path), path)

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

    async def write(self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None) -> int:
        self._require_ready()
        check_path(path)
        folder, name = posixpath.split(path)
        if name in ("", ".", ".."):
            raise GuestPathInvalid(f"{path!r} names a directory.")
        target = self._resolve(path)
        if (self._resolve(folder) / name).is_symlink() and not target.exists():
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
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
        return size

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
            place.write_bytes(lines)
        else:
            place.unlink(missing_ok=True)

    async def ssh_connections(self) -> int:
        self._require_ready()
        with suppress(FileNotFoundError):
            return int(self._disk.with_name(SSH_CONNECTIONS_FILE).read_text())
        return 0

    async def sync(self) -> None:
        self._require_ready()

    async def close(self) -> None:
        return

    def _require_ready(self) -> Domain:
        domain = self._store.domain(self._id)
        ready = domain is not None and domain.ready_at is not None and domain.ready_at <= time.time()
        if domain is None or domain.state is not MachineState.RUNNING or not ready:
            raise GuestUnreachable("The machine's control channel does not answer.")
        return domain

    def _find(self, path: str) -> Path:
        """The path on the host of an existing file. Raises GuestPathNotFound."""
        self._require_ready()
        check_path(path)
        place = self._resolve(path)
        if not place.exists():
            raise GuestPathNotFound(f"There is no {path!r} inside the machine.")
        return place

    def _resolve(self, path: str) -> Path:
        """Resolve `path` with the directory as its root, symbolic links included."""
        todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
        done: list[str] = []
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                done[-1:] = []
                continue
            place = self._disk.joinpath(*done, part)
            if not place.is_symlink():
                done.append(part)
                continue
            links += 1
            if links > _MAX_LINKS:
                raise GuestPathNotFound(f"{path!r} is a loop of symbolic links.")
            target = str(place.readlink())
            done = [] if target.startswith("/") else done
            todo.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
        return self._disk.joinpath(*done)

    def _cwd(self, working_dir: str | None) -> Path:
        place = self._resolve(working_dir or "/")
        if not place.is_dir():
            raise GuestCommandInvalid(f"There is no directory {working_dir!r}.")
        return place

    async def _start(
        self, words: list[str], domain: Domain, env: Mapping[str, str], cwd: Path
    ) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            return await asyncio.create_subprocess_exec(
                *words,
                cwd=cwd,
                env={**_base_env(domain), **env},
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
            )
        except (OSError, ValueError, TypeError) as error:
            raise GuestCommandInvalid("The command cannot be started.") from error


def _base_env(domain: Domain) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), **domain.spec.boot.env}


def _check_user(user: str | None) -> None:
    """Commands run as this process's user; another user only has to exist."""
    try:
        if user is not None:
            pwd.getpwnam(user)
    except (KeyError, ValueError) as error:
        raise GuestCommandInvalid(f"There is no user {user!r}.") from error


async def _feed(stdin: asyncio.StreamWriter | None, data: bytes) -> None:
    if stdin is None:
        return
    with suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(data)
        await stdin.drain()
    stdin.close()


async def _drain(stream: asyncio.StreamReader | None, buffer: BoundedBuffer) -> None:
    while stream is not None and (block := await stream.read(_CHUNK)):
        buffer.append(block)


def _entry(place: Path, path: str) -> Entry:
    found = place.lstat()
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
    kind = kinds.get(stat.S_IFMT(found.st_mode), "other")
    return Entry(
        name=path.rstrip("/").rsplit("/", 1)[-1] or "/",
        path=path,
        type=kind,
        size=found.st_size,
        mode=stat.S_IMODE(found.st_mode),
        modified=found.st_mtime,
        target=str(place.readlink()) if kind == "symlink" else None,
    )
