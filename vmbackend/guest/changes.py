"""Creating, removing and renaming in the guest: by its file server, whole trees by the kit's busybox.

Acknowledged changes are on the disk: the directories concerned are flushed before each function returns.
"""

from __future__ import annotations

import stat
from posixpath import basename, dirname

import asyncssh

from vmbackend.errors import GuestPathExists, GuestPathInvalid, GuestPathNotFound

from .command_results import KitCommand, require_end
from .directories import diagnose_failure, flush_directories, make_parents, require_absent
from .listing import check_path
from .mount_points import require_removable
from .sftp import FileChannel
from .translate import UnnamedFailure

MAX_MESSAGE = 4096


async def make_directory(files: FileChannel, path: str, mode: int | None = None) -> None:
    """See GuestSession.make_directory."""
    path = _named(path)
    client = await files.client()
    await require_absent(files, path)
    made = await make_parents(files, client, dirname(path))
    try:
        await files.request(client.mkdir(path), path)
    except (UnnamedFailure, GuestPathExists, GuestPathNotFound) as error:
        await require_absent(files, path)
        raise await diagnose_failure(files, path) or error from error
    if mode is not None:  # by itself, as the file server takes its own mask from that of a new directory
        await files.request(client.setstat(path, asyncssh.SFTPAttrs(permissions=mode)), path)
    await flush_directories(files, [dirname(path), *map(dirname, made)])


async def remove_path(files: FileChannel, run: KitCommand, path: str, kit: str) -> None:
    """See GuestSession.remove."""
    path = _named(path)
    client = await files.client()
    found = await files.request(client.lstat(path), path)
    try:
        if stat.S_ISDIR(found.permissions or 0):
            await require_removable(files, run, path, kit)
            await _remove_tree(files, run, path)
        else:
            await files.request(client.remove(path), path)
    except UnnamedFailure as error:
        raise await diagnose_failure(files, dirname(path)) or error from error
    await flush_directories(files, [dirname(path)])


async def _remove_tree(files: FileChannel, run: KitCommand, path: str) -> None:
    done = require_end(await run("busybox", ["rm", "-rf", "--", path], "/", b"", MAX_MESSAGE))
    if done.exit_code == 0:
        return
    client = await files.client()
    try:
        await files.request(client.lstat(path), path)
    except GuestPathNotFound:
        return
    raise GuestPathInvalid(f"{path!r} was not removed completely: {_sentence(done.stderr)}")


async def rename_path(files: FileChannel, run: KitCommand, source: str, destination: str) -> None:
    """See GuestSession.rename."""
    source, destination = _named(source), _named(destination)
    client = await files.client()
    await files.request(client.lstat(source), source)
    await files.request(client.stat(dirname(destination)), dirname(destination))
    try:
        await files.request(client.rename(source, destination), destination)
    except UnnamedFailure as error:
        await require_absent(files, destination)
        reason = await diagnose_failure(files, dirname(destination))
        if reason is not None:
            raise reason from error
        await _copy_and_remove(run, source, destination)
    await flush_directories(files, [dirname(destination), dirname(source)])


async def _copy_and_remove(run: KitCommand, source: str, destination: str) -> None:
    """Copy and remove between two file systems, and for directories in a lower layer of the overlay."""
    done = require_end(await run("busybox", ["mv", "-n", "-T", "--", source, destination], "/", b"", MAX_MESSAGE))
    if done.exit_code != 0:
        raise GuestPathInvalid(f"{source!r} cannot be moved to {destination!r}: {_sentence(done.stderr)}")
    require_end(await run("busybox", ["sync"], "/", b"", MAX_MESSAGE))


def _named(path: str) -> str:
    """Return the path without slashes at its end, which would resolve a link. Raise GuestPathInvalid without a name
    there.
    """
    check_path(path)
    path = path.rstrip("/")
    if basename(path) in ("", ".", ".."):
        raise GuestPathInvalid(f"{path or '/'!r} does not end in a name.")
    return path


def _sentence(stderr: bytes) -> str:
    """Return the first line of a program's message. A hostile guest's words, but printable."""
    line = stderr.split(b"\n", 1)[0].decode("utf-8", "replace")[:200]
    return "".join(letter if letter.isprintable() else "?" for letter in line) or "no reason was given"
