"""Archives of several paths, by the real helper over SSH, and by the fake driver."""

from __future__ import annotations

import io
import os
import shutil
import socket
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from vmbackend.errors import GuestUnreachable
from vmbackend.guest import archives

from .test_guest_session import Guest, guest, helper, local

__all__ = ["guest", "helper", "local"]
pytestmark = pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox")


def fill(folder: Path) -> None:
    (folder / "w" / "deep").mkdir(parents=True)
    (folder / "w" / "a.txt").write_text("text")
    (folder / "w" / "deep" / "b\nc").write_bytes(b"x" * 300_000)
    (folder / "w" / "link").symlink_to("deep")
    (folder / "w" / "skip.log").touch()
    (folder / "-file").touch()


def members(archive: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as opened:
        return {member.name: member for member in opened.getmembers()}


def archived(guest: Guest, *names: str, **options: Any) -> bytes:
    paths = [f"{guest.inside}/{name}" for name in names]
    chunks = guest.pool.stream(guest.address, lambda session: archives.archive_paths(session, paths, **options))
    return b"".join(chunks)


def test_the_guest_makes_the_archive(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(guest.outside)
    for number in range(250):  # more than one program has
        (guest.outside / "w" / "deep" / f"{number}{'n' * 200}").write_text(str(number))
    odd = os.fsdecode(b"\xff")
    (guest.outside / "w" / odd).touch()
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(guest.outside)
        listening.bind("w/socket")
    found = members(archived(guest, "w", ignore=["skip*"]))
    before = f"{guest.inside}/w".strip("/")
    assert len(found) == 250 + 6
    assert f"{before}/{odd}" in found
    assert f"{before}/skip.log" not in found


def test_a_walk_that_fails_ends_the_archive(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(guest.outside)

    async def below(*arguments: Any) -> AsyncIterator[bytes]:
        yield b""
        raise GuestUnreachable("The machine is gone.")

    monkeypatch.setattr(archives, "_below", below)
    with pytest.raises(GuestUnreachable):
        archived(guest, "w")
