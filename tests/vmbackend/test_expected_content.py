"""A file is replaced only while it has the content that was read, also between processes of the platform."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.vmbackend.test_guest_session import Guest, guest, helper, local
from vmbackend.errors import GuestFileChanged, GuestPathInvalid
from vmbackend.guest.session import ANY_CONTENT, GuestSession

__all__ = ["guest", "helper", "local"]
NAMES = ["file", "-n", "a b'$(id)\n", "\udcff"]


def hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def entries(folder: Path) -> set[str]:
    return {place.name for place in folder.iterdir()}


@pytest.mark.parametrize("name", NAMES)
def test_the_content_that_was_read_is_replaced_and_another_is_not(guest: Guest, name: str) -> None:
    place = guest.outside / name
    place.write_bytes(b"one")
    place.chmod(0o640)
    assert guest.write(name, b"two", expected=hash_of(b"one")) == 3
    with pytest.raises(GuestFileChanged):
        guest.write(name, b"three", expected=hash_of(b"one"))
    assert (place.read_bytes(), place.stat().st_mode & 0o777) == (b"two", 0o640)
    assert guest.write(name, b"four", expected=ANY_CONTENT) == 4
    assert place.read_bytes() == b"four"
    assert entries(guest.outside) == {name}, "no partial file is left"


def test_a_file_that_is_gone_or_a_directory_is_not_replaced(guest: Guest) -> None:
    (guest.outside / "folder").mkdir()
    with pytest.raises(GuestFileChanged):
        guest.write("gone", b"x", expected=hash_of(b"one"))
    with pytest.raises(GuestPathInvalid):
        guest.write("folder", b"x", expected=ANY_CONTENT)
    assert entries(guest.outside) == {"folder"}


def test_through_a_link_its_target_is_compared_and_replaced(guest: Guest) -> None:
    (guest.outside / "below").mkdir()
    (guest.outside / "below" / "file").write_bytes(b"one")
    (guest.outside / "link").symlink_to("below/file")
    guest.write("link", b"two", expected=hash_of(b"one"))
    assert (guest.outside / "below" / "file").read_bytes() == b"two"
    assert (guest.outside / "link").is_symlink()


def test_sessions_that_count_in_a_file_lose_nothing(guest: Guest) -> None:
    """Each session is one of a process of its own."""
    place = guest.outside / "count"
    place.write_bytes(b"0")
    path = f"{guest.inside}/count"

    async def read(session: GuestSession) -> bytes:
        return b"".join([chunk async for chunk in session.read(path)])

    async def count(session: GuestSession, to: int) -> None:
        done = 0
        while done < to:
            content = await read(session)
            try:
                await session.write(path, stream(b"%d" % (int(content) + 1)), expected=hash_of(content))
            except GuestFileChanged:
                continue
            done += 1

    async def both(own: GuestSession) -> None:
        others = [guest.pool._arguments[0](guest.address) for _ in range(2)]
        try:
            await asyncio.gather(*(count(session, 5) for session in (own, *others)))
        finally:
            for other in others:
                await other.close()

    guest.call(both)
    assert place.read_bytes() == b"15"


def test_a_program_that_has_the_folders_lock_is_waited_for(guest: Guest) -> None:
    (guest.outside / "file").write_bytes(b"one")
    opened = os.open(guest.outside, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)

    threading.Timer(0.5, os.close, [opened]).start()
    assert guest.write("file", b"two", expected=ANY_CONTENT) == 3


def test_a_program_that_keeps_the_folders_lock_is_named_as_the_reason(guest: Guest) -> None:
    (guest.outside / "file").write_bytes(b"one")
    opened = os.open(guest.outside, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    try:
        with pytest.raises(GuestPathInvalid, match="has locked"):
            guest.write("file", b"two", expected=ANY_CONTENT)
    finally:
        os.close(opened)
    assert (guest.outside / "file").read_bytes() == b"one"
    assert entries(guest.outside) == {"file"}, "no partial file is left"


def test_a_folder_that_goes_while_its_file_is_written_is_a_failure_of_the_path(guest: Guest) -> None:
    folder = guest.outside / "folder"

    async def chunks() -> AsyncIterator[bytes]:
        yield b"new"
        shutil.rmtree(folder)

    folder.mkdir()
    with pytest.raises(GuestPathInvalid):
        guest.call(lambda session: session.write(f"{guest.inside}/folder/file", chunks(), expected=ANY_CONTENT))


async def stream(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
