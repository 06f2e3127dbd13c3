"""Files of a guest over SSH: virtual files, large directories, read-only and full file systems."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vmbackend.errors import GuestDiskFull, GuestPathInvalid, GuestPathNotFound
from vmbackend.guest import kernel_files, ssh_files

from .local_dropbear import LocalGuest
from .test_guest_session import Guest, helper, local, ssh_pool

__all__ = ["helper", "local"]
pytestmark = pytest.mark.host
NAMES = [b"-rf", b"a\nb", b"\xff\xfe", b"$(id)", b"..x", "ü".encode(), b"*", b" ", b"x" * 255]


@pytest.fixture
def guest(local: LocalGuest) -> Iterator[Guest]:
    pool = ssh_pool(local)
    yield Guest(pool, local.address, str(local.root), local.root)
    pool.close()


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def pages(guest: Guest, limit: int, name: str = "") -> list[list[str]]:
    found: list[list[str]] = []
    after, more = "", True
    while more:
        entries, more = guest.names(name, limit=limit, after=after)
        found.append([entry.name for entry in entries])
        after = found[-1][-1] if entries else ""
    return found


@pytest.mark.parametrize("limit", [1, 4, 9, 100])
def test_pages_contain_every_name_once_and_in_order(guest: Guest, limit: int):
    for name in NAMES:
        (guest.outside / os.fsdecode(name)).write_bytes(name)
    found = pages(guest, limit)
    names = [name for page in found for name in page]
    assert names == [os.fsdecode(name) for name in sorted(NAMES)]
    assert all(len(page) == limit for page in found[:-1])


def test_a_listing_has_entries_of_every_kind_as_they_are(guest: Guest):
    (guest.outside / "d").mkdir(mode=0o700)
    (guest.outside / "f").write_bytes(b"xyz")
    (guest.outside / "f").chmod(0o640)
    (guest.outside / "l").symlink_to("/nowhere/at all")
    os.mkfifo(guest.outside / "p")
    entries, more = guest.names()
    assert [(one.name, one.path, one.type, one.target) for one in entries] == [
        ("d", f"{guest.inside}/d", "directory", None),
        ("f", f"{guest.inside}/f", "file", None),
        ("l", f"{guest.inside}/l", "symlink", "/nowhere/at all"),
        ("p", f"{guest.inside}/p", "other", None),
    ]
    assert (entries[0].mode, entries[1].mode, entries[1].size, more) == (0o700, 0o640, 3, False)


def test_a_directory_is_listed_through_a_link_and_with_a_slash(guest: Guest):
    (guest.outside / "-d").mkdir()
    for name in "abcdef":
        (guest.outside / "-d" / name).touch()
    (guest.outside / "to").symlink_to("-d")
    for name in ("-d", "-d/", "to", "to//", "-d/../-d"):
        assert pages(guest, 10, name) == [list("abcdef")]


def test_a_hundred_thousand_entries_come_in_pages_of_a_bounded_size(guest: Guest):
    for number in range(100_000):
        os.mknod(guest.outside / f"entry-{number:06}")
    entries, more = guest.names(limit=1000, after="entry-050000")
    assert [entries[0].name, entries[-1].name] == ["entry-050001", "entry-051000"]
    assert (len(entries), more) == (1000, True)
    entries, more = guest.names(limit=1000, after="entry-099990")
    assert (len(entries), more) == (9, False)


def test_names_of_the_platform_are_not_listed_nor_found(guest: Guest):
    own = [".partial-0123456789abcdef", ".files-0123456789abcdef", ".ask-0123456789abcdef"]
    for name in (*own, ".ask-config", ".partial-mine", "a"):
        (guest.outside / name).touch()
    assert pages(guest, 10) == [[".ask-config", ".partial-mine", "a"]]
    walked, _ = guest.call(lambda session: session.walk(guest.inside, depth=2, limit=10))
    assert [entry.path for entry in walked] == [".ask-config", ".partial-mine", "a"]
    described = guest.call(lambda session: session.describe_files(guest.inside, [*own, ".ask-config", "a"]))
    assert [entry.path for entry in described] == [".ask-config", "a"]


def test_what_is_no_directory_is_not_listed(guest: Guest):
    (guest.outside / "file").touch()
    with pytest.raises(GuestPathInvalid):
        guest.names("file")
    with pytest.raises(GuestPathNotFound):
        guest.names("none")


def test_virtual_files_are_recognized_and_read_completely(guest: Guest, local: LocalGuest):
    def stat(path: str) -> Any:
        return guest.call(lambda session: session.stat(path))

    mtu = "/sys/class/net/lo/mtu"
    assert (stat("/proc/version").is_virtual, stat(mtu).is_virtual, stat("/proc").is_virtual) == (True, True, False)
    assert int(guest.read(mtu)) > 0  # its reported size is 4096 bytes
    version = guest.read("/proc/version")
    assert version == Path("/proc/version").read_bytes()
    assert guest.read("/proc/version", offset=2, length=5) == version[2:7]
    assert guest.read("/proc/version", offset=5000) == b""
    (guest.outside / "empty").touch()
    assert stat(f"{guest.inside}/empty").is_virtual is False


def test_an_endless_virtual_file_is_refused_and_other_files_work(guest: Guest, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kernel_files, "MAX_VIRTUAL_FILE", 10)
    with pytest.raises(GuestPathInvalid, match="virtual file"):
        guest.read("/proc/version")
    monkeypatch.setattr(ssh_files, "KERNEL_SECONDS", 1.0)
    (guest.outside / "never").symlink_to("/proc/kmsg")
    with pytest.raises(GuestPathInvalid):  # the read blocks, or is not permitted
        guest.read("never")
    guest.write("file", b"1")
    assert guest.read("file") == b"1"


@pytest.mark.parametrize("path", ["/proc/new", "/sys/new", "/proc/1/new/file", "/sys/class/net/lo/mtu"])
def test_writes_to_virtual_file_systems_are_refused_as_invalid_paths(guest: Guest, path: str):
    with pytest.raises(GuestPathInvalid):
        guest.call(lambda session: session.write(path, chunks(b"x")))


@pytest.mark.parametrize("path", ["..", ".", "d/..", "d/.", "d/"])
def test_a_path_that_can_only_be_a_directory_is_not_written(guest: Guest, path: str):
    (guest.outside / "d").mkdir()
    with pytest.raises(GuestPathInvalid, match="directory"):
        guest.write(path, b"x")
    assert [place.name for place in guest.outside.rglob("*")] == ["d"]


@pytest.fixture
def mounted(local: LocalGuest, guest: Guest) -> Iterator[Callable[[str], None]]:
    """Mounts a tmpfs over the guest's files."""
    made: list[bool] = []

    def mount(options: str) -> None:
        local.stop()
        if not made:
            subprocess.run(["mount", "-t", "tmpfs", "none", str(local.root)], check=True)
            made.append(True)
        subprocess.run(["mount", "-o", f"remount,{options}", str(local.root)], check=True)
        local.start()

    yield mount
    guest.pool.close()
    local.stop()
    if made:
        subprocess.run(["umount", "-l", str(local.root)], check=True)


def test_a_read_only_file_system_is_reported(guest: Guest, mounted: Callable[[str], None]):
    mounted("size=4m")
    guest.write("file", b"old")
    mounted("ro")
    for name in ("file", "new", "new/below"):
        with pytest.raises(GuestPathInvalid, match="read-only"):
            guest.write(name, b"x")
    assert guest.read("file") == b"old"


def test_a_disk_without_inodes_is_full(guest: Guest, mounted: Callable[[str], None]):
    mounted("size=4m,nr_inodes=4")
    guest.write("file", b"old")
    for name in ("a", "b"):
        (guest.outside / name).touch()
    with pytest.raises(GuestDiskFull):
        guest.write("file", b"new")
    assert guest.read("file") == b"old"


async def chunks(*blocks: bytes) -> AsyncIterator[bytes]:
    for chunk in blocks:
        yield chunk
