"""Files, trees and archives of the runtime in a real machine, which all tests of this file share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.sandboxes.level.test_machine import Machine, machine
from vmbackend.errors import GuestPathInvalid
from vmbackend.guest.archives import archive_paths
from vmbackend.guest.session import GuestSession
from workspaces.runtime.files.chosen import Chooser
from workspaces.runtime.files.services import file_write
from workspaces.runtime.files.trees import Wanted, tree_list
from workspaces.runtime.transfer.services import archive_unpack, sifted
from workspaces.runtime.transfer.sifting import Sifter

__all__ = ["machine"]
pytestmark = pytest.mark.vm
FILES = 3000


def write(machine: Machine, path: str, content: bytes, **options: Any) -> Any:
    fields = {"create_dirs": True, "append": False, "mode": None, **options}
    return machine.call(lambda session: file_write(session, path=path, content=content, **fields))


def listed(machine: Machine, path: str, **options: Any) -> list[str]:
    wanted = Wanted(path=path, depth=64, chooser=Chooser(root=path), **options)
    batch, _ = machine.call(lambda session: tree_list(session, wanted))
    return [entry.path for entry in batch.entries]


def test_files_are_written_appended_and_listed(machine: Machine) -> None:
    assert write(machine, "/r/log", b"one\n", append=True, mode=0o600) == 4
    assert write(machine, "/r/log", b"two\n", append=True) == 8
    assert machine.run("cat /r/log; stat -c %a /r/log").stdout == b"one\ntwo\n600\n"
    machine.run("ln -s log /r/link; printf '*.o\\n' > /r/.gitignore; touch /r/x.o")
    entry = machine.call(lambda session: session.stat_link("/r/link"))
    assert (entry.type, entry.target) == ("symlink", "log")
    assert listed(machine, "/r") == [".gitignore", "link", "log", "x.o"]
    assert listed(machine, "/r", gitignore=True) == [".gitignore", "log"]


def test_mount_points_and_the_kit_are_not_removed(machine: Machine) -> None:
    machine.run("mkdir -p /m/mount; mount -t tmpfs none /m/mount; touch /m/mount/kept")
    for path in ("/m", "/m/mount", "/run/kit", "/run/kit/data", "/run", "/proc", "/dev"):
        with pytest.raises(GuestPathInvalid):
            machine.call(lambda session, path=path: session.remove(path))
    assert machine.run("ls /m/mount; umount /m/mount").stdout == b"kept\n"


def test_an_archive_goes_out_and_in_again(machine: Machine) -> None:
    machine.run(f"mkdir -p /a/deep && cd /a/deep && seq {FILES} | xargs touch; head -c 3000000 /dev/urandom > /a/big")
    machine.run("ln -s deep /a/link; touch /a/skip.log")
    data = machine.call(lambda session: _archive(session, "/a"))
    sifter = Sifter(1 << 30)

    async def unpack(session: GuestSession) -> None:
        await session.make_directory("/b")
        await archive_unpack(session, sifted(_pieces(data), sifter), dest="/b", sifter=sifter)

    machine.call(unpack)
    assert (sifter.files, sifter.skipped) == (FILES + 2, 0)
    same = machine.run("rm /a/skip.log; diff -r /a /b/a && readlink /b/a/link && ls /b/a/deep | wc -l")
    assert same.stdout.split() == [b"deep", str(FILES).encode()], same


async def _archive(session: GuestSession, path: str) -> bytes:
    return b"".join([chunk async for chunk in archive_paths(session, [path], ["*.log"])])


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 65536):
        yield data[start : start + 65536]
