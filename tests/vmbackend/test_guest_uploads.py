"""Writes to a guest over SSH: preserved attributes, and cleanup after failed writes."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from vmbackend.errors import GuestPathInvalid, GuestUnreachable
from vmbackend.guest.connection import ConnectionSettings
from vmbackend.guest.pool import GuestPool
from vmbackend.guest.session import ANY_CONTENT, GuestSession
from vmbackend.guest.ssh import SSHGuestSession

from .local_dropbear import LocalGuest
from .test_guest_files import chunks, guest, wait_until
from .test_guest_session import Guest, helper, local

__all__ = ["guest", "helper", "local"]
pytestmark = pytest.mark.host


def test_owner_and_mode_of_an_existing_file_are_preserved(guest: Guest):
    guest.write("file", b"old")
    os.chown(guest.outside / "file", 1234, 4321)
    (guest.outside / "file").chmod(0o4711)
    os.link(guest.outside / "file", guest.outside / "other")
    guest.write("file", b"new")
    found = (guest.outside / "file").stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o7777) == (1234, 4321, 0o4711)
    assert (guest.outside / "other").read_bytes() == b"old"


def access_list(user: int) -> bytes:
    """Of a file that its owner and one other user may read and write, and no one else; its mode says 0660."""
    none = 0xFFFFFFFF
    entries = [(0x01, 6, none), (0x02, 6, user), (0x04, 0, none), (0x10, 6, none), (0x20, 0, none)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.mark.parametrize("options", [{}, {"expected": ANY_CONTENT}], ids=["by the file server", "by the kit"])
def test_what_an_existing_file_has_beside_its_content_is_kept(guest: Guest, options: dict[str, Any]):
    place, kept = guest.outside / "file", {"system.posix_acl_access": access_list(1234), "user.note": b"\0mine"}
    guest.write("file", b"old")
    for name, value in kept.items():
        os.setxattr(place, name, value)
    os.setxattr(place, "security.capability", struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0))
    guest.write("file", b"new", **options)
    assert {name: os.getxattr(place, name) for name in kept} == kept
    assert "security.capability" in os.listxattr(place)
    assert (place.read_bytes(), place.stat().st_mode & 0o7777) == (b"new", 0o660)


def state(path: Path) -> tuple[int, int, int, list[str]]:
    found = path.stat()
    return found.st_uid, found.st_gid, found.st_mode & 0o7777, os.listxattr(path)


@pytest.mark.parametrize("linked", [False, True], ids=["of another owner", "a hard link"])
def test_a_file_that_was_put_in_the_place_of_the_new_one_stays_as_it_is(
    hold_program: Path, tmp_path: Path, linked: bool
) -> None:
    """By a user of the machine, whose folder it is: root's commands give no file of another's away."""
    kept, put = tmp_path / "file", tmp_path / "put"
    for path in (kept, put):
        path.write_bytes(b"")
        path.chmod(0o600)
        os.chown(path, 1234, 4321)
    kept.chmod(0o4755)
    os.setxattr(kept, "user.note", b"mine")
    os.setxattr(put, "user.other", b"its own")
    if linked:
        os.link(put, tmp_path / "linked")
    else:
        os.chown(put, 0, 4321)
    before = state(put)
    done = subprocess.run([hold_program, "attributes", kept, put], capture_output=True, timeout=60)
    assert (done.returncode, state(put)) == (1, before)


def test_a_folders_access_list_does_not_open_a_file_that_is_overwritten(guest: Guest):
    place = guest.outside / "file"
    guest.write("file", b"old")
    place.chmod(0o640)
    os.setxattr(guest.outside, "system.posix_acl_default", access_list(1234))
    guest.write("file", b"new")
    assert os.listxattr(place) == []
    assert place.stat().st_mode & 0o7777 == 0o640


def test_a_file_is_written_through_a_link_and_keeps_its_mode(guest: Guest):
    guest.write("file", b"old")
    (guest.outside / "file").chmod(0o600)
    (guest.outside / "link").symlink_to("file")
    guest.write("link", b"new")
    assert (guest.outside / "link").is_symlink()
    assert (guest.outside / "file").read_bytes() == b"new"
    assert (guest.outside / "file").stat().st_mode & 0o7777 == 0o600


async def endless(on_start: Callable[[], None]) -> AsyncIterator[bytes]:
    while True:
        yield b"x" * 1000
        on_start()
        await asyncio.sleep(0.05)


def partial_files(local: LocalGuest) -> list[Path]:
    """Partial files and their tracking records. Folders may be removed in the middle, at which `rglob` fails."""
    return [
        Path(folder) / name
        for root, begin in ((local.root, ".partial-"), (local.tracking, "partial-"))
        for folder, folders, files in os.walk(root)
        for name in (*folders, *files)
        if name.startswith(begin)
    ]


def test_a_write_leaves_no_tracking_record(guest: Guest, local: LocalGuest):
    guest.write("file", b"x")
    with pytest.raises(GuestPathInvalid):
        guest.write("file/below", b"x")
    assert partial_files(local) == []
    guest.pool.close()
    wait_until(lambda: list(local.tracking.iterdir()) == [])


def test_a_lost_connection_leaves_no_partial_file(guest: Guest, local: LocalGuest):
    guest.write("folder/file", b"old")

    def on_start() -> None:
        if len(partial_files(local)) == 2:
            local.drop_connections()

    with pytest.raises(GuestUnreachable):
        guest.call(lambda session: session.write(f"{guest.inside}/folder/file", endless(on_start)))
    wait_until(lambda: partial_files(local) == [] and len(list(local.tracking.iterdir())) <= 1)
    assert guest.read("folder/file") == b"old"


WRITER = """
import asyncio, sys
from pathlib import Path
from tests.vmbackend.test_guest_uploads import endless
from vmbackend.guest.commands import KitPaths
from vmbackend.guest.session import GuestAddress
from vmbackend.guest.ssh import SSHGuestSession

port, host_key, key, path, *kit = sys.argv[1:]
session = SSHGuestSession(GuestAddress("local", "127.0.0.1", int(port), host_key), Path(key), kit=KitPaths(*kit))
asyncio.run(session.write(path, endless(lambda: None)))
"""


def test_a_process_killed_during_a_write_leaves_no_partial_file(guest: Guest, local: LocalGuest):
    names = [b"plain", b"a\nb $(id) '\"", b"\xff"]
    for name in names:
        (local.root / os.fsdecode(name)).mkdir()
    kit = local.kit
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", WRITER, str(local.port), local.host_key, str(local.private_key)),
                f"{guest.inside}/{os.fsdecode(name)}/file",
                *(kit.helper, kit.sftp_server, kit.busybox, kit.data, kit.tracking),
            ]
        )
        for name in names
    ]
    try:
        wait_until(lambda: len(list(local.root.rglob(".partial-*"))) == len(names))
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
    wait_until(lambda: partial_files(local) == [] and list(local.tracking.iterdir()) == [])
    assert [place for place in local.root.rglob("*") if place.is_file()] == []


def test_concurrent_writes_of_a_file_leave_one_of_them_complete(guest: Guest, local: LocalGuest):
    async def write_concurrently(session: GuestSession) -> None:
        path = f"{guest.inside}/file"
        await asyncio.gather(*(session.write(path, chunks(*[letter * 70_000] * 5)) for letter in (b"a", b"b")))

    guest.call(write_concurrently)
    assert guest.read("file") in (b"a" * 350_000, b"b" * 350_000)
    assert partial_files(local) == []


def file_server(local: LocalGuest) -> int:
    """The pid of the file server of the only connection."""
    (pid,) = local.connections()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "sftp-server":
        (pid,) = (int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return pid


def test_a_request_waits_for_a_slow_block_instead_of_ending_its_transfer(local: LocalGuest):
    """The file server stops for longer than the request timeout; the write in progress survives."""
    settings = ConnectionSettings(request_timeout=1.0)
    pool = GuestPool(lambda address: SSHGuestSession(address, local.private_key, settings=settings, kit=local.kit))

    async def slow(session: GuestSession) -> int:
        async def blocks() -> AsyncIterator[bytes]:
            yield b"x" * 1000
            os.kill(stopped, signal.SIGSTOP)
            yield b"y" * 1000
            asyncio.get_running_loop().call_later(2.5, os.kill, stopped, signal.SIGCONT)
            requests.append(asyncio.ensure_future(session.stat("/")))

        await session.stat("/")
        stopped = file_server(local)
        requests: list[asyncio.Future[Any]] = []
        size = await session.write(f"{local.root}/file", blocks())
        assert (await requests[0]).type == "directory"
        return size

    try:
        assert pool.call(local.address, slow, timeout=30) == 2000
    finally:
        pool.close()
    assert (local.root / "file").read_bytes() == b"x" * 1000 + b"y" * 1000
