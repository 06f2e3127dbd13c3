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
from workspaces.runtime.transfer.errors import ArchiveInvalid
from workspaces.runtime.transfer.services import archive_unpack, sifted
from workspaces.runtime.transfer.sifting import Sifter

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


async def in_pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def unpack(guest: Guest, data: bytes, dest: str, size: int = 10_000) -> Sifter:
    sifter = Sifter(1 << 30)

    async def push(session: Any) -> None:
        await archive_unpack(session, sifted(in_pieces(data, size), sifter), dest=dest, sifter=sifter)

    guest.call(push)
    return sifter


def test_an_archive_is_unpacked_as_it_was_made(guest: Guest) -> None:
    fill(guest.outside)
    data = archived(guest, "w")
    (guest.outside / "there").mkdir()
    sifter = unpack(guest, data, f"{guest.inside}/there")
    copy = guest.outside / "there" / f"{guest.inside}/w".strip("/")
    assert (sifter.files, sifter.skipped) == (4, 0)
    assert (copy / "deep" / "b\nc").read_bytes() == b"x" * 300_000
    assert (copy / "link").readlink() == Path("deep")


def test_the_first_entry_that_fails_ends_the_unpacking(guest: Guest) -> None:
    (guest.outside / "there" / "second").mkdir(parents=True)
    (guest.outside / "there" / "second" / "kept").touch()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as opened:
        for name in ("first", "second", "third"):
            opened.addfile(tarfile.TarInfo(name))
    with pytest.raises(ArchiveInvalid) as raised:
        unpack(guest, made.getvalue(), f"{guest.inside}/there")
    assert raised.value.details == {"files_extracted": 1}
    assert sorted(place.name for place in (guest.outside / "there").iterdir()) == ["first", "second"]


def test_a_body_that_breaks_off_unpacks_nothing_more(guest: Guest) -> None:
    (guest.outside / "there").mkdir()
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as opened:
        for number in range(20):
            member = tarfile.TarInfo(f"{number:02}")
            member.size = 50_000
            opened.addfile(member, io.BytesIO(os.urandom(50_000)))
    with pytest.raises(ArchiveInvalid, match="ends in the middle") as raised:
        unpack(guest, made.getvalue()[:400_000], f"{guest.inside}/there")
    assert raised.value.details is not None
    assert 0 < raised.value.details["files_extracted"] <= 8
    assert guest.run("echo on").stdout == b"on\n"
