"""Bringing the search program into a guest that has not got it: into its memory, as the kit is there and read-only.

It is run by the kit's loader, with the kit's libraries and those that came with it, so it works in every image.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from functools import lru_cache
from pathlib import Path

from vmbackend.errors import BackendUnavailable, GuestPathNotFound

from .commands import KitPaths
from .session import GuestSession, SearchTools

PROGRAM = "rg"
LOADER = "ld-linux-x86-64.so.2"
BLOCK = 240 * 1024


def no_folder() -> Path:
    """Raise BackendUnavailable: the session was opened without the platform's kit."""
    raise BackendUnavailable("There is no search program for this machine.")


async def bring_tools(session: GuestSession, kit: KitPaths, source: Path) -> SearchTools:
    """See GuestSession.search_tools. `source`: the folder of the kit with the program and its libraries.

    The program is written last, and each file whole, so two that bring it at once do no harm, and neither does the
    death of one.
    """
    folder = await _folder(kit, source)
    if (found := await find_tools(session, kit, source)) is not None:
        return found
    for path in _files(source):
        await session.write(f"{folder}/{path.name}", _blocks(path), mode=0o755)
    return _tools(kit, folder)


async def find_tools(session: GuestSession, kit: KitPaths, source: Path) -> SearchTools | None:
    """See GuestSession.find_search_tools."""
    folder = await _folder(kit, source)
    try:
        await session.stat(f"{folder}/{PROGRAM}")
    except GuestPathNotFound:
        return None
    return _tools(kit, folder)


async def _folder(kit: KitPaths, source: Path) -> str:
    return f"{kit.tracking}/.search-{await asyncio.to_thread(_digest, source / PROGRAM)}"


def _tools(kit: KitPaths, folder: str) -> SearchTools:
    loader = f"{kit.libraries}/{LOADER}"
    program = (loader, "--library-path", f"{folder}:{kit.libraries}", f"{folder}/{PROGRAM}")
    return SearchTools(program, (kit.busybox, "sh"))


@lru_cache(maxsize=4)
def _digest(program: Path) -> str:
    try:
        return hashlib.sha256(program.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise BackendUnavailable("The guest kit has no search program: run `manage.py guest_kit`.") from error


def _files(source: Path) -> list[Path]:
    """Return the files; the program comes last."""
    return sorted((path for path in source.iterdir() if path.suffix != ".new"), key=lambda path: path.name == PROGRAM)


async def _blocks(path: Path) -> AsyncIterator[bytes]:
    with path.open("rb") as file:
        while block := await asyncio.to_thread(file.read, BLOCK):
            yield block
