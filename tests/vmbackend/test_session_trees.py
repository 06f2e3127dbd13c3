"""Trees of files, by both sessions to guests: walked, made, renamed, removed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from vmbackend.errors import GuestPathExists, GuestPathInvalid, GuestPathNotFound
from vmbackend.guest.session import TreeEntry

from .test_guest_session import Guest, guest, helper, local

__all__ = ["guest", "helper", "local"]


def make_tree(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def walk(guest: Guest, name: str = "", **options: Any) -> tuple[list[TreeEntry], bool]:
    options = {"depth": 64, "limit": 100, **options}
    found: tuple[list[TreeEntry], bool] = guest.call(lambda session: session.walk(f"{guest.inside}/{name}", **options))
    return found


def test_a_tree_is_walked_in_order(guest: Guest):
    make_tree(guest.outside, "b", "a/y/z", "a/x")
    (guest.outside / "link").symlink_to("a")
    os.mkfifo(guest.outside / "pipe")
    entries, more = walk(guest)
    assert [(e.path, e.type, e.is_regular, e.target) for e in entries] == [
        ("a", "directory", False, None),
        ("a/x", "file", True, None),
        ("a/y", "directory", False, None),
        ("a/y/z", "file", True, None),
        ("b", "file", True, None),
        ("link", "directory", False, "a"),
        ("pipe", "file", False, None),
    ]
    assert (more, entries[1].size, entries[1].modified) == (False, 3, int((guest.outside / "a/x").stat().st_mtime))
    assert [e.path for e in walk(guest, depth=1)[0]] == ["a", "b", "link", "pipe"]
    entries, more = walk(guest, limit=2)
    assert ([e.path for e in entries], more) == (["a", "a/x"], True)
    assert walk(guest, limit=7)[1] is False


def test_what_is_ignored_is_not_entered(guest: Guest):
    make_tree(guest.outside, "node_modules/a", "src/node_modules/b", "src/c")
    assert [e.path for e in walk(guest, ignore=["node_modules"])[0]] == ["src", "src/c"]


def test_odd_names_are_walked_and_hashed(guest: Guest):
    names = [b"-rf", b"a\nb", b"\xff\xfe", b"  x", b"\\", b"*"]
    for name in names:
        (guest.outside / os.fsdecode(name)).write_bytes(name)
    entries, _ = walk(guest)
    assert {os.fsencode(entry.path) for entry in entries} == set(names)
    hashes = guest.call(lambda session: session.hash_files(guest.inside or "/", [e.path for e in entries]))
    assert hashes == {os.fsdecode(name): hashlib.sha256(name).hexdigest() for name in names}


@pytest.mark.host
def test_a_file_that_cannot_be_read_has_no_hash(local: Any, guest: Guest):
    make_tree(guest.outside, "a", "c")
    hashes = guest.call(lambda session: session.hash_files(guest.inside, ["a", "gone", "c"])) if guest.inside else {}
    assert list(hashes) == (["a", "c"] if guest.inside else [])


def test_a_walk_of_what_is_no_directory(guest: Guest):
    make_tree(guest.outside, "file")
    with pytest.raises(GuestPathInvalid):
        walk(guest, "file")
    with pytest.raises(GuestPathNotFound):
        walk(guest, "none")


def test_a_write_that_may_not_replace(guest: Guest):
    assert guest.write("deep/file", b"1", replace=False) == 1
    (guest.outside / "broken").symlink_to("nothing")
    (guest.outside / "folder").mkdir()
    for name in ("deep/file", "broken", "folder"):
        with pytest.raises(GuestPathExists):
            guest.write(name, b"2", replace=False)
    assert guest.read("deep/file") == b"1"
    assert sorted(path.name for path in guest.outside.rglob("*")) == ["broken", "deep", "file", "folder"]


def test_a_file_that_appears_while_another_is_written_is_not_replaced(guest: Guest):
    async def late() -> Any:
        yield b"late"
        (guest.outside / "file").write_bytes(b"early")

    with pytest.raises(GuestPathExists):
        guest.call(lambda session: session.write(f"{guest.inside}/file", late(), replace=False))
    assert [path.name for path in guest.outside.iterdir()] == ["file"]
    assert guest.read("file") == b"early"


def test_directories_are_made_once(guest: Guest):
    path = f"{guest.inside}/a/b"
    guest.call(lambda session: session.make_directory(path))
    assert (guest.outside / "a/b").is_dir()
    with pytest.raises(GuestPathExists):
        guest.call(lambda session: session.make_directory(path))
    make_tree(guest.outside, "file")
    with pytest.raises(GuestPathInvalid):
        guest.call(lambda session: session.make_directory(f"{guest.inside}/file/below"))


def test_files_links_and_trees_are_removed(guest: Guest):
    make_tree(guest.outside, "tree/a/b", "kept/x")
    (guest.outside / "tree/link").symlink_to("../kept")
    for name in ("tree/link/", "tree"):
        guest.call(lambda session, name=name: session.remove(f"{guest.inside}/{name}"))
    assert [path.name for path in guest.outside.iterdir()] == ["kept"]
    assert (guest.outside / "kept/x").exists()
    with pytest.raises(GuestPathNotFound):
        guest.call(lambda session: session.remove(f"{guest.inside}/tree"))
    for name in ("", "..", "kept/."):
        with pytest.raises(GuestPathInvalid):
            guest.call(lambda session, name=name: session.remove(f"{guest.inside}/{name}" if name else "/"))


def test_renames_replace_nothing(guest: Guest):
    make_tree(guest.outside, "a", "b", "folder/x")

    def rename(source: str, destination: str) -> None:
        guest.call(lambda session: session.rename(f"{guest.inside}/{source}", f"{guest.inside}/{destination}"))

    for source, destination in (("a", "b"), ("folder", "b"), ("a", "folder")):
        with pytest.raises(GuestPathExists):
            rename(source, destination)
    for source, destination in (("none", "c"), ("a", "none/c")):
        with pytest.raises(GuestPathNotFound):
            rename(source, destination)
    with pytest.raises(GuestPathInvalid):
        rename("folder", "folder/below")
    rename("a", "c")
    rename("folder", "other")
    assert sorted(str(path.relative_to(guest.outside)) for path in guest.outside.rglob("*")) == [
        "b", "c", "other", "other/x",
    ]  # fmt: skip


def test_a_command_is_ended_when_it_has_written_enough(guest: Guest):
    marker = f"stop-{os.getpid()}"
    done = guest.run(["sh", "-c", "while :; do echo line || exit; done", marker], stop_after=(b"\n", 3), timeout=60)
    assert done.stdout.startswith(b"line\nline\nline\n")
    assert (done.exit_code, done.truncated, done.timed_out) == (0, True, False)
    seen = f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -q '[l]ine || exit; done {marker}'"
    gone = f"while {seen}; do sleep 0.1; done"
    assert guest.run(gone, timeout=20).timed_out is False
