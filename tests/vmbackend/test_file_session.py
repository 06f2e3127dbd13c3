"""Links as they are, appends, modes, and trees of any size: by the real helper over SSH, and by the fake driver."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vmbackend.errors import GuestPathInvalid, GuestPathNotFound, GuestUnreachable
from vmbackend.guest.session import TreeEntry
from vmbackend.guest.streamed_walk import MAX_RECORD, split_records

from .test_guest_session import Guest, as_stream, guest, helper, local

__all__ = ["guest", "helper", "local"]
ENTRIES = 3000


def append(guest: Guest, name: str, *chunks: bytes, **options: Any) -> int:
    path = f"{guest.inside}/{name}"
    return int(guest.call(lambda session: session.append(path, as_stream(*chunks), **options)))


def walked(guest: Guest, name: str, **options: Any) -> list[TreeEntry]:
    path = f"{guest.inside}/{name}"
    batches = guest.pool.stream(guest.address, lambda session: session.walk_streamed(path, **options))
    return [entry for batch in batches for entry in batch]


def test_a_link_is_shown_as_it_is(guest: Guest) -> None:
    guest.write("file", b"abc")
    (guest.outside / "link").symlink_to("file")
    (guest.outside / "broken").symlink_to("/none\udcff")

    def look(name: str) -> Any:
        return guest.call(lambda session: session.stat_link(f"{guest.inside}/{name}"))

    assert (look("link").type, look("link").target, look("link").name) == ("symlink", "file", "link")
    assert (look("broken").type, look("broken").target) == ("symlink", "/none\udcff")
    assert (look("file").type, look("file").target, look("file").size) == ("file", None, 3)
    assert look("").type == "directory"
    with pytest.raises(GuestPathNotFound):
        look("absent")


def test_appends_follow_one_another(guest: Guest) -> None:
    assert append(guest, "log", b"one\n") == 4
    big = b"x" * 1_000_000
    assert append(guest, "log", b"two\n", big, b"\n") == 8 + len(big) + 1
    assert guest.read("log") == b"one\ntwo\n" + big + b"\n"
    assert stat.S_IMODE((guest.outside / "log").stat().st_mode) == 0o644
    append(guest, "log", mode=0o600)
    assert stat.S_IMODE((guest.outside / "log").stat().st_mode) == 0o600
    (guest.outside / "link").symlink_to("log")
    append(guest, "link", b"end")
    assert (guest.outside / "link").is_symlink()
    assert guest.read("log").endswith(b"\nend")


def test_what_is_no_regular_file_is_not_appended_to(guest: Guest) -> None:
    os.mkfifo(guest.outside / "pipe")
    (guest.outside / "folder").mkdir()
    (guest.outside / "broken").symlink_to("none/none")
    for name in ("pipe", "folder", "folder/", "broken"):
        with pytest.raises(GuestPathInvalid):
            append(guest, name, b"x")
    with pytest.raises(GuestPathNotFound):
        append(guest, "none/file", b"x")
    assert not (guest.outside / "none").exists()


def test_a_new_directory_has_the_mode_that_was_asked_for(guest: Guest) -> None:
    guest.call(lambda session: session.make_directory(f"{guest.inside}/a/b", mode=0o1777))
    assert stat.S_IMODE((guest.outside / "a" / "b").stat().st_mode) == 0o1777
    assert stat.S_IMODE((guest.outside / "a").stat().st_mode) == 0o755


def test_a_tree_comes_in_parts(guest: Guest) -> None:
    for number in range(ENTRIES):
        place = guest.outside / "tree" / f"d{number % 3}" / f"{number:05d}{'n' * 100}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    (guest.outside / "tree" / "link").symlink_to("d0")
    found = walked(guest, "tree", depth=64)
    assert len(found) == ENTRIES + 4
    assert [entry.path for entry in found if entry.target] == ["link"]
    assert [entry.path for entry in found if entry.type == "directory"] == ["d0", "d1", "d2", "link"]
    assert [entry.path for entry in walked(guest, "tree", depth=1)] == ["d0", "d1", "d2", "link"]
    assert [entry.path for entry in walked(guest, "tree", depth=64, ignore=["d1", "d2", "0*"])] == ["d0", "link"]


def test_a_walk_that_is_not_read_to_its_end_harms_nothing(guest: Guest) -> None:
    for number in range(ENTRIES):
        (guest.outside / f"{number:05d}{'n' * 200}").touch()
    batches = guest.pool.stream(guest.address, lambda session: session.walk_streamed(guest.inside or "/", depth=1))
    assert next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert guest.run("echo on").stdout == b"on\n"


def test_what_is_no_directory_is_not_walked(guest: Guest) -> None:
    guest.write("file", b"")
    with pytest.raises(GuestPathInvalid):
        walked(guest, "file", depth=1)
    with pytest.raises(GuestPathNotFound):
        walked(guest, "none", depth=1)


def test_records_are_whole() -> None:
    whole = b"f-r 1 2 a\0\0"
    assert split_records(whole) == (whole, b"")
    assert split_records(whole + b"f-r 1 2 b\0") == (whole, b"f-r 1 2 b\0")
    assert split_records(whole + b"f-r 1 2 b\0targ") == (whole, b"f-r 1 2 b\0targ")
    assert split_records(b"f-r") == (b"", b"f-r")
    with pytest.raises(GuestUnreachable):
        split_records(b"x" * (MAX_RECORD + 1))


@contextmanager
def mounted(place: Path) -> Iterator[None]:
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.host
def test_a_mount_point_and_what_has_one_are_not_removed(local: Any) -> None:
    from .test_guest_session import ssh_pool

    place = local.root / "above" / "with \\ blank"
    local.stop()
    with mounted(place):
        (place / "kept").touch()
        local.start()
        pool = ssh_pool(local)
        (local.root / "link").symlink_to(local.root)
        try:
            for path in (place, local.root / "above", local.root / "link" / "above"):
                with pytest.raises(GuestPathInvalid, match="busy"):
                    pool.call(local.address, lambda session, path=path: session.remove(str(path)), timeout=60)
            assert (place / "kept").exists()
        finally:
            pool.close()
            local.stop()
