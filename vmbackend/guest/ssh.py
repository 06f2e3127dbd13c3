"""The guest session over SSH: commands by the kit's helper, files by the kit's sftp-server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from posixpath import basename
from typing import Any, Unpack

from vmbackend.errors import GuestCommandInvalid, GuestKitOutdated, GuestPathInvalid, GuestUnreachable

from . import changes, commands, kernel_files, records, search, transfer, walks
from .asking import Answer
from .buffers import BoundedBuffer
from .commands import KitPaths, RemoteCommand
from .communicate import read_output
from .connection import CommandConnections, Connection, ConnectionSettings
from .held import HeldRunner
from .hold.client import HoldClient, HoldSettings
from .hold.command import CommandStart, NotStarted
from .hold.tasks import HeldTasks
from .hold_channel import ssh_opener
from .left_out import MOST_BYTES
from .listing import attributes_entry, check_path
from .output import StreamedOutput, StreamOptions
from .replacing import keep_attributes, move_expected
from .running import run_answering, run_remote
from .session import IMAGE_USER, DiskUsage, Entry, ExecResult, GuestAddress, GuestSession, SearchTools, TreeEntry
from .sftp import FileChannel
from .ssh_limits import CpuBudget
from .streamed import stream_remote

SSH_PORT = 22  # of the users' own server
HELPER_TIMEOUT = 30.0  # seconds; the helper itself gives up after 10
TREE_SECONDS = 120.0  # to walk, hash or remove a tree
ARCHIVE_SECONDS = 3600.0  # to archive one; its reader may be slow
TERMINAL_BUFFER = 256 * 1024  # bytes; the guest takes as much memory as there is output
REPLACING_SECONDS = 60.0  # to compare and rename a file, after those that have its folder's lock
KERNEL_SECONDS = 15.0  # to read a virtual file


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
        search_folder: Callable[[], Path] = search.no_folder,
        terminal_buffer: int = TERMINAL_BUFFER,
    ) -> None:
        """`terminal_buffer`: bytes of a terminal's output that the guest keeps, from its next start on."""
        settings = settings or ConnectionSettings()
        budget = CpuBudget()
        # dropbear resets a sixth connection that has not logged in yet.
        self._own = (address, private_key, settings, asyncio.Semaphore(2), budget)
        self._kit = kit or KitPaths()
        self._search_folder = search_folder
        self._terminal_buffer = terminal_buffer
        self._search_tools: SearchTools | None = None
        self._connection = Connection(address, private_key, settings, budget=budget)
        self._commands = CommandConnections(address, private_key, settings, budget)
        self._run = partial(run_remote, self._commands)
        self._files = FileChannel(self._connection, self._kit, settings.request_timeout)
        self._held = HeldRunner(self.open_hold, self._commands.place)

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
        fields: dict[str, Any] = {"env": env, "working_dir": working_dir, "user": user, "timeout": timeout}
        remote = commands.build_command(self._kit, command, **fields, grace=grace)
        try:
            return await self._execute(remote, stdin, timeout, max_output, reserved=False, stop_after=stop_after)
        except GuestKitOutdated:  # it is killed at once, as it was before the update
            remote = commands.build_command(self._kit, command, **fields)
        return await self._execute(remote, stdin, timeout, max_output, reserved=False, stop_after=stop_after)

    def execute_streamed(self, command: Sequence[str] | str, **options: Unpack[StreamOptions]) -> StreamedOutput:
        return stream_remote(self._commands, self._kit, command, options)

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
        remote = commands.build_command(
            self._kit, command, env=env, working_dir=working_dir, user=None, timeout=timeout, grace=grace, asks=True
        )
        return _started(await run_answering(self._commands, remote, answer, timeout, max_output))

    @property
    def askpass_program(self) -> str:
        return self._kit.askpass

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
        remote = commands.build_command(
            self._kit, command, env=env, working_dir=working_dir, user=user or IMAGE_USER, timeout=timeout
        )
        words = ["sh", "-c", command] if isinstance(command, str) else list(command)
        start = CommandStart(words, env or {}, working_dir, user)
        try:
            return _started(await self._held.run(start, timeout, max_output))
        except NotStarted:
            return await self._execute(remote, b"", timeout, max_output, reserved=False)

    async def open_tasks(self) -> HeldTasks:
        return self._held.client.tasks

    def open_hold(self, settings: HoldSettings | None = None) -> HoldClient:
        """Return a client of the terminals that the guest keeps. It has a connection of its own and outlives the
        session.
        """
        settings = settings or HoldSettings()
        opener = ssh_opener(Connection(*self._own), self._kit, self._terminal_buffer, settings.linger)
        return HoldClient(opener, settings)

    async def list_directory(self, path: str, *, limit: int = 10_000, after: str = "") -> tuple[list[Entry], bool]:
        check_path(path)
        run = partial(self._platform_command, timeout=TREE_SECONDS)
        return await walks.list_directory(run, self.stat, self._kit.helper, path, limit=limit, after=after)

    async def stat(self, path: str) -> Entry:
        check_path(path)
        client = await self._files.client()
        found, system = await asyncio.gather(
            self._files.request(client.stat(path), path), self._files.request(client.statvfs(path), path)
        )
        entry = attributes_entry(basename(path.rstrip("/")) or "/", path, found)
        # File systems without blocks are virtual: proc, sysfs, cgroups, tracing.
        return replace(entry, is_virtual=entry.type == "file" and system.blocks == 0)

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        seen = await self.stat(path)
        if seen.type != "file":
            raise GuestPathInvalid(f"{path!r} is not a regular file.")
        if seen.is_virtual:
            data = await kernel_files.read_virtual(self._platform_command, self._kit.busybox, path)
            end = len(data) if length is None else offset + length
            for start in range(offset, min(end, len(data)), transfer.BLOCK):
                yield data[start : min(start + transfer.BLOCK, end)]
            return
        async with aclosing(transfer.read_file(self._files, path, offset, length)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def write(
        self,
        path: str,
        chunks: AsyncIterator[bytes],
        *,
        mode: int | None = None,
        replace: bool = True,
        expected: str | None = None,
    ) -> int:
        check_path(path)
        if path.endswith("/"):
            raise GuestPathInvalid(f"{path!r} names a directory.")
        move = None if expected is None else partial(self._move_expected, expected)
        keep = partial(keep_attributes, self._replacing_command)
        return await transfer.write_file(self._files, path, chunks, mode, replace=replace, keep=keep, move=move)

    async def _move_expected(self, expected: str, source: str, target: str) -> bool:
        return await move_expected(self._replacing_command, self._kit.busybox, source, target, expected)

    async def archive(self, path: str, said: bytearray | None = None) -> AsyncIterator[bytes]:
        if (await self.stat(path)).type != "directory":
            raise GuestPathInvalid(f"{path!r} is not a directory.")
        command = [self._kit.busybox, "tar", "-cf", "-", "."]
        remote = commands.build_command(
            self._kit, command, env=None, working_dir=path, user=None, timeout=ARCHIVE_SECONDS
        )
        errors = BoundedBuffer(MOST_BYTES)
        errors.data = errors.data if said is None else said
        async with (
            self._commands.channel(remote.line, once=True) as channel,
            aclosing(read_output(channel, remote.preamble, errors)) as blocks,
        ):
            async for block in blocks:
                yield block

    async def make_directory(self, path: str) -> None:
        await changes.make_directory(self._files, path)

    async def remove(self, path: str) -> None:
        await changes.remove_path(self._files, self._kit_command, path)

    async def rename(self, source: str, destination: str) -> None:
        await changes.rename_path(self._files, self._kit_command, source, destination)

    async def walk(
        self, path: str, *, depth: int, limit: int, ignore: Sequence[str] = ()
    ) -> tuple[list[TreeEntry], bool]:
        if (await self.stat(path)).type != "directory":
            raise GuestPathInvalid(f"{path!r} is not a directory.")
        return await walks.walk_tree(self._kit_command, path, depth=depth, limit=limit, ignore=ignore)

    async def describe_files(self, path: str, names: Sequence[str]) -> list[TreeEntry]:
        return await walks.describe_files(self._kit_command, path, names)

    async def search_tools(self, *, again: bool = False) -> SearchTools:
        if self._search_tools is None or again:
            self._search_tools = await search.bring_tools(self, self._kit, self._search_folder())
        return self._search_tools

    async def hash_files(self, path: str, names: Sequence[str]) -> dict[str, str]:
        return await walks.hash_files(self._kit_command, self._kit.busybox, path, names)

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
        await self.kit_helper("ssh on" if enabled else "ssh off", lines)

    async def ssh_connections(self) -> int:
        output = await self.kit_helper(f"connections {SSH_PORT}", b"")
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
        await self._held.close()
        await self._connection.close()
        await self._commands.close()

    async def kit_helper(self, words: str, stdin: bytes, max_output: int = 4096) -> bytes:
        remote = RemoteCommand(f"{self._kit.helper} {words}", b"")
        result = await self._run(remote, stdin, HELPER_TIMEOUT, max_output, reserved=True)
        failure = commands.start_failure(result.exit_code, result.stderr)
        if failure is not None:
            raise commands.refusal_error(failure)
        if result.exit_code != 0:
            raise GuestUnreachable("The machine did not carry out the request.")
        return result.stdout

    async def _kit_command(
        self, program: str, arguments: Sequence[str], working_dir: str, stdin: bytes, max_output: int
    ) -> ExecResult:
        """Run a program of the kit, for a request of a user; takes one of the places of users' commands."""
        command = [str(getattr(self._kit, program)), *arguments]
        remote = commands.build_command(
            self._kit, command, env=None, working_dir=working_dir, user=None, timeout=TREE_SECONDS
        )
        return await self._execute(remote, stdin, TREE_SECONDS, max_output, reserved=False)

    async def _replacing_command(
        self, program: str, arguments: Sequence[str], working_dir: str, stdin: bytes, max_output: int
    ) -> ExecResult:
        """Run a program of the kit at the end of a write, which does not wait for commands of users."""
        command = [str(getattr(self._kit, program)), *arguments]
        return await self._platform_command(command, max_output, working_dir=working_dir, timeout=REPLACING_SECONDS)

    async def _platform_command(
        self,
        command: Sequence[str],
        max_output: int,
        *,
        working_dir: str | None = None,
        timeout: float = KERNEL_SECONDS,
    ) -> ExecResult:
        """Run a short command of the platform itself, which does not wait for commands of users."""
        remote = commands.build_command(
            self._kit, command, env=None, working_dir=working_dir, user=None, timeout=timeout
        )
        return await self._execute(remote, b"", timeout, max_output, reserved=True)

    async def _execute(
        self,
        remote: RemoteCommand,
        stdin: bytes,
        timeout: float,
        max_output: int,
        *,
        reserved: bool,
        stop_after: tuple[bytes, int] | None = None,
    ) -> ExecResult:
        """Raise GuestCommandInvalid if the helper cannot start it."""
        return _started(await self._run(remote, stdin, timeout, max_output, reserved=reserved, stop_after=stop_after))


def _started(result: ExecResult) -> ExecResult:
    """Return the result. Raise the errors of `start_error` if the helper could not start it, GuestKitOutdated."""
    if commands.is_outdated(result.exit_code, result.stderr):
        raise GuestKitOutdated(commands.OUTDATED)
    failure = commands.start_failure(result.exit_code, result.stderr)
    if failure is not None:
        raise commands.start_error(failure, result.exit_code)
    return result
