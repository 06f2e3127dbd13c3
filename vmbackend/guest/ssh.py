"""The guest session over SSH: commands by the kit's helper, files by the kit's sftp-server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from posixpath import basename

from vmbackend.errors import GuestCommandInvalid, GuestPathInvalid, GuestPathNotFound, GuestUnreachable
from vmbackend.guest.communicate import BoundedBuffer, communicate

from . import commands, listing, records, transfer
from .commands import KitPaths, RemoteCommand
from .connection import CommandConnections, Connection, ConnectionSettings
from .listing import check_path, make_entry
from .session import DiskUsage, Entry, ExecResult, GuestAddress, GuestSession, Terminal
from .sftp import FileChannel
from .ssh_limits import CpuBudget
from .terminal import open_terminal

# Seconds beyond the guest's own deadline to wait for the helper's report of it.
DEADLINE_SLACK = 5.0
SSH_PORT = 22  # of the users' own server
HELPER_TIMEOUT = 30.0  # seconds; the helper itself gives up after 10
KERNEL_SECONDS = 15.0  # to list a large directory, to read a virtual file
MAX_NAMES = 8 << 20  # bytes of a directory's names
MAX_VIRTUAL_FILE = 16 << 20


class SSHGuestSession(GuestSession):
    """One guest over persistent connections: one for files, one for each concurrent command.

    Belongs to the event loop that first uses it.
    """

    def __init__(
        self,
        address: GuestAddress,
        private_key: Path,
        *,
        settings: ConnectionSettings | None = None,
        kit: KitPaths | None = None,
    ) -> None:
        settings = settings or ConnectionSettings()
        budget = CpuBudget()
        # dropbear resets a sixth connection that has not logged in yet.
        self._own = (address, private_key, settings, asyncio.Semaphore(2), budget)
        self._start_timeout = settings.request_timeout
        self._kit = kit or KitPaths()
        self._connection = Connection(address, private_key, settings, budget=budget)
        self._commands = CommandConnections(address, private_key, settings, budget)
        self._files = FileChannel(self._connection, self._kit, settings.request_timeout)

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
        remote = commands.build_command(
            self._kit, command, env=env, working_dir=working_dir, user=user, timeout=timeout
        )
        return await self._execute(remote, stdin, timeout, max_output, reserved=False)

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
        remote = commands.build_terminal(self._kit, command, env=env, working_dir=working_dir, user=user)
        return await open_terminal(Connection(*self._own), remote, (cols, rows), self._start_timeout)

    async def list_directory(self, path: str, *, limit: int = 10_000, after: str = "") -> tuple[list[Entry], bool]:
        if (await self.stat(path)).type != "directory":
            raise GuestPathInvalid(f"{path!r} is not a directory.")
        return await listing.list_directory(self._files, self._names, path, limit, after)

    async def stat(self, path: str) -> Entry:
        check_path(path)
        client = await self._files.client()
        found, system = await asyncio.gather(
            self._files.request(client.stat(path), path), self._files.request(client.statvfs(path), path)
        )
        attributes_entry = make_entry(basename(path.rstrip("/")) or "/", path, found)
        # File systems without blocks are virtual: proc, sysfs, cgroups, tracing.
        return replace(attributes_entry, is_virtual=attributes_entry.type == "file" and system.blocks == 0)

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        seen = await self.stat(path)
        if seen.type != "file":
            raise GuestPathInvalid(f"{path!r} is not a regular file.")
        if seen.is_virtual:
            data = await self._read_virtual(path)
            end = len(data) if length is None else offset + length
            for start in range(offset, min(end, len(data)), transfer.BLOCK):
                yield data[start : min(start + transfer.BLOCK, end)]
            return
        async with aclosing(transfer.read_file(self._files, path, offset, length)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def write(self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None) -> int:
        check_path(path)
        if path.endswith("/"):
            raise GuestPathInvalid(f"{path!r} names a directory.")
        return await transfer.write_file(self._files, path, chunks, mode)

    async def disk_usage(self) -> DiskUsage:
        client = await self._files.client()
        found = await self._files.request(client.statvfs(self._kit.data), self._kit.data)
        unit = found.frsize
        return DiskUsage(
            total_bytes=found.blocks * unit,
            used_bytes=(found.blocks - found.bfree) * unit,
            available_bytes=found.bavail * unit,
        )

    async def set_ssh(self, enabled: bool, keys: Sequence[str]) -> None:
        try:
            lines = records.ssh_key_file(keys) if enabled else b""
        except ValueError as error:
            raise GuestCommandInvalid(f"An SSH key cannot be used: {error}.") from error
        await self._helper("ssh on" if enabled else "ssh off", lines)

    async def ssh_connections(self) -> int:
        output = await self._helper(f"connections {SSH_PORT}", b"")
        try:
            return int(output)
        except ValueError as error:
            raise GuestUnreachable("The machine did not report its connections.") from error

    async def sync(self) -> None:
        result = await self._run(RemoteCommand(f"{self._kit.busybox} sync", b""), b"", 60.0, 1024, reserved=True)
        if result.exit_code != 0:
            raise GuestUnreachable("The machine did not flush its disk.")

    async def close(self) -> None:
        self._files.reset()
        await self._connection.close()
        await self._commands.close()

    async def _names(self, path: str) -> bytes:
        """The names in a directory in the format of `find -print0`."""
        command = [self._kit.busybox, "find", ".", "-maxdepth", "1", "-mindepth", "1", "-print0"]
        try:
            result = await self._platform_command(command, MAX_NAMES, working_dir=path)
        except GuestCommandInvalid as error:
            raise GuestPathNotFound(f"There is no {path!r} inside the machine any more.") from error
        if result.truncated:
            raise GuestPathInvalid(f"{path!r} contains more names than can be listed.")
        if result.timed_out:
            raise GuestUnreachable("The machine did not list the directory in time.")
        return result.stdout

    async def _read_virtual(self, path: str) -> bytes:
        """The content of a virtual file, some of which block for ever or never end.

        Read by a separate command with limits of time and size, as the file server would hang with all its transfers.
        """
        command = [self._kit.busybox, "head", "-c", str(MAX_VIRTUAL_FILE + 1), path]
        result = await self._platform_command(command, MAX_VIRTUAL_FILE)
        if result.timed_out:
            raise GuestPathInvalid(f"{path!r} blocks while it is read.")
        if result.truncated:
            raise GuestPathInvalid(f"{path!r} is a virtual file of more than {MAX_VIRTUAL_FILE >> 20} MiB.")
        if result.exit_code != 0:
            raise GuestPathInvalid(f"The machine does not allow {path!r} to be read.")
        return result.stdout

    async def _helper(self, words: str, stdin: bytes) -> bytes:
        """The output of the kit's helper. Raises GuestCommandInvalid with the helper's message if it fails."""
        remote = RemoteCommand(f"{self._kit.helper} {words}", b"")
        result = await self._run(remote, stdin, HELPER_TIMEOUT, 4096, reserved=True)
        failure = commands.start_failure(result.exit_code, result.stderr)
        if failure is not None:
            raise GuestCommandInvalid(f"The machine refused: {failure}")
        if result.exit_code != 0:
            raise GuestUnreachable("The machine did not carry out the request.")
        return result.stdout

    async def _platform_command(
        self, command: Sequence[str], max_output: int, *, working_dir: str | None = None
    ) -> ExecResult:
        """A short command of the platform itself, which does not wait for commands of users."""
        remote = commands.build_command(
            self._kit, command, env=None, working_dir=working_dir, user=None, timeout=KERNEL_SECONDS
        )
        return await self._execute(remote, b"", KERNEL_SECONDS, max_output, reserved=True)

    async def _execute(
        self, remote: RemoteCommand, stdin: bytes, timeout: float, max_output: int, *, reserved: bool
    ) -> ExecResult:
        """Raises GuestCommandInvalid where the helper cannot start it."""
        result = await self._run(remote, stdin, timeout, max_output, reserved=reserved)
        failure = commands.start_failure(result.exit_code, result.stderr)
        if failure is not None:
            raise GuestCommandInvalid(f"The command cannot be started: {failure}")
        return result

    async def _run(
        self, remote: RemoteCommand, stdin: bytes, timeout: float, max_output: int, *, reserved: bool
    ) -> ExecResult:
        started = time.monotonic()
        out, err = BoundedBuffer(max_output), BoundedBuffer(max_output)
        async with self._commands.channel(remote.line, reserved=reserved) as channel:
            try:
                async with asyncio.timeout(timeout + DEADLINE_SLACK):
                    code = await communicate(channel, remote.preamble + stdin, out, err)
            except TimeoutError:
                code = commands.TIMED_OUT
        elapsed = time.monotonic() - started
        return ExecResult(
            exit_code=code,
            stdout=bytes(out.data),
            stderr=bytes(err.data),
            duration_ms=int(elapsed * 1000),
            truncated=out.truncated or err.truncated,
            # A command may itself exit with 124; only after the deadline it is the helper's code.
            timed_out=code == commands.TIMED_OUT and elapsed >= timeout,
        )
