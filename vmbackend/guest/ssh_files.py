"""The files of a guest over SSH: its file server, and programs of the kit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from posixpath import basename

from vmbackend.errors import GuestKitOutdated, GuestPathInvalid

from . import changes, commands, kernel_files, transfer, walks
from .appending import append_file
from .buffers import BoundedBuffer
from .commands import KitPaths, RemoteCommand
from .communicate import read_output
from .connection import CommandConnections
from .left_out import MOST_BYTES
from .listing import attributes_entry, check_path
from .output import StreamOptions
from .replacing import keep_attributes, move_expected
from .session import DiskUsage, Entry, ExecResult, GuestSession, TreeEntry
from .sftp import FileChannel
from .streamed import stream_remote
from .streamed_walk import NO_LIMIT, read_walk

TREE_SECONDS = 120.0  # to walk, hash or remove a tree
WALK_SECONDS = 3600.0  # to walk one of any size; its reader may be slow
ARCHIVE_SECONDS = 3600.0  # to archive one; its reader may be slow
REPLACING_SECONDS = 60.0  # to compare and rename a file, after those that have its folder's lock
KERNEL_SECONDS = 15.0  # to read a virtual file


class SSHFiles(GuestSession):
    """The part of a session that concerns files. The attributes are those of `SSHGuestSession`."""

    _kit: KitPaths
    _files: FileChannel
    _commands: CommandConnections
    _run: Callable[..., Awaitable[ExecResult]]

    async def list_directory(self, path: str, *, limit: int = 10_000, after: str = "") -> tuple[list[Entry], bool]:
        check_path(path)
        run = partial(self._platform_command, timeout=TREE_SECONDS)
        return await walks.list_directory(run, self.stat, self._kit.helper, path, limit=limit, after=after)

    async def walk(
        self, path: str, *, depth: int, limit: int, ignore: Sequence[str] = ()
    ) -> tuple[list[TreeEntry], bool]:
        if (await self.stat(path)).type != "directory":
            raise GuestPathInvalid(f"{path!r} is not a directory.")
        return await walks.walk_tree(self._kit_command, path, depth=depth, limit=limit, ignore=ignore)

    async def walk_streamed(
        self, path: str, *, depth: int, ignore: Sequence[str] = ()
    ) -> AsyncIterator[list[TreeEntry]]:
        if (await self.stat(path)).type != "directory":
            raise GuestPathInvalid(f"{path!r} is not a directory.")
        words = [self._kit.helper, "walk", str(depth), str(NO_LIMIT), *ignore]
        options: StreamOptions = {"working_dir": path, "timeout": WALK_SECONDS}
        async with aclosing(stream_remote(self._commands, self._kit, words, options)) as parts:
            async for entries in read_walk(parts, path):
                yield entries

    async def describe_files(self, path: str, names: Sequence[str]) -> list[TreeEntry]:
        return await walks.describe_files(self._kit_command, path, names)

    async def hash_files(self, path: str, names: Sequence[str]) -> dict[str, str]:
        return await walks.hash_files(self._kit_command, self._kit.busybox, path, names)

    async def stat(self, path: str) -> Entry:
        check_path(path)
        client = await self._files.client()
        found, system = await asyncio.gather(
            self._files.request(client.stat(path), path), self._files.request(client.statvfs(path), path)
        )
        entry = attributes_entry(basename(path.rstrip("/")) or "/", path, found)
        # File systems without blocks are virtual: proc, sysfs, cgroups, tracing.
        return replace(entry, is_virtual=entry.type == "file" and system.blocks == 0)

    async def stat_link(self, path: str) -> Entry:
        check_path(path)
        client = await self._files.client()
        found = await self._files.request(client.lstat(path), path)
        entry = attributes_entry(basename(path.rstrip("/")) or "/", path, found)
        if entry.type != "symlink":
            return entry
        return replace(entry, target=await self._files.request(client.readlink(path), path))

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

    async def append(self, path: str, chunks: AsyncIterator[bytes], *, mode: int | None = None) -> int:
        check_path(path)
        return await append_file(self._files, path, chunks, mode)

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

    async def make_directory(self, path: str, *, mode: int | None = None) -> None:
        await changes.make_directory(self._files, path, mode)

    async def _move_expected(self, expected: str, source: str, target: str) -> bool:
        return await move_expected(self._replacing_command, self._kit.busybox, source, target, expected)

    async def remove(self, path: str) -> None:
        await changes.remove_path(self._files, self._kit_command, path, self._kit.root)

    async def rename(self, source: str, destination: str) -> None:
        await changes.rename_path(self._files, self._kit_command, source, destination)

    async def disk_usage(self) -> DiskUsage:
        client = await self._files.client()
        found = await self._files.request(client.statvfs(self._kit.data), self._kit.data)
        unit = found.frsize
        return DiskUsage(
            total_bytes=found.blocks * unit,
            used_bytes=(found.blocks - found.bfree) * unit,
            available_bytes=found.bavail * unit,
        )

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
        return started(await self._run(remote, stdin, timeout, max_output, reserved=reserved, stop_after=stop_after))


def started(result: ExecResult) -> ExecResult:
    """Return the result. Raise the errors of `start_error` if the helper could not start it, GuestKitOutdated."""
    if commands.is_outdated(result.exit_code, result.stderr):
        raise GuestKitOutdated(commands.OUTDATED)
    failure = commands.start_failure(result.exit_code, result.stderr)
    if failure is not None:
        raise commands.start_error(failure, result.exit_code)
    return result
