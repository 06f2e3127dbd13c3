"""Files, commands and searches of the sandbox level in a real machine, which all tests of this file share."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sandboxes.level.terminal import services as terminal
from tests.run_extent import WHOLE
from tests.vmbackend.conftest import Harness
from vmbackend.errors import GuestPathExists, GuestPathInvalid
from vmbackend.guest.session import GuestAddress, GuestSession
from workspaces.data_plane.files import services as files
from workspaces.data_plane.files.edits import Edit
from workspaces.data_plane.search import services as search
from workspaces.data_plane.search.program import Selection

pytestmark = pytest.mark.vm
FILES = 100_000 if WHOLE else 30_000
LINE = 300_000_000 if WHOLE else 20_000_000  # bytes; above what the search program may have in memory, or below
LONG = {"timeout_ms": 180_000}
SEARCH = {"case_sensitive": True, "regex": False, "max_results": 100, "selection": Selection()}


@dataclass
class Machine:
    harness: Harness
    address: GuestAddress

    def call(self, fn: Callable[[GuestSession], Awaitable[Any]]) -> Any:
        return self.harness.pool.call(self.address, fn, timeout=200)

    def run(self, command: str, **options: Any) -> Any:
        fields = {"cwd": None, "env": {}, "timeout_ms": 60_000, **options}
        return self.call(lambda session: terminal.command_run(session, command=command, **fields))

    def listed(self, path: str, **options: Any) -> Any:
        fields = {"depth": 64, "ignore": (), **options}
        return self.call(lambda session: files.files_list(session, path=path, **fields))

    def create(self, path: str, content: str) -> None:
        self.call(lambda session: files.file_create(session, path=path, content=content))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    factory = pytest.importorskip("tests.vmbackend.libvirt_factory")
    harness = factory.make_harness(tmp_path_factory.mktemp("machine"))
    try:
        # A disk with as many inodes and bytes.
        yield Machine(harness, harness.running_machine(disk_mb=2048 if WHOLE else 64))
    finally:
        harness.close()


def test_a_tree_is_made_listed_edited_moved_and_removed(machine: Machine) -> None:
    machine.create("/w/src/a.py", "one two")
    machine.create("/w/node_modules/x", "x")
    machine.run("ln -s src /w/link; mkdir /w/empty; mkdir /w/mount; mount -t tmpfs none /w/mount")
    found = machine.listed("/w", ignore=["node_modules"], with_hashes=True)
    assert [(entry.path, entry.type) for entry in found.entries] == [
        ("empty", "directory"),
        ("link", "directory"),
        ("mount", "directory"),
        ("src", "directory"),
        ("src/a.py", "file"),
    ]
    assert found.hashes == {"src/a.py": hashlib.sha256(b"one two").hexdigest()}
    edits = [Edit("one", "1"), Edit("two", "2")]
    assert machine.call(lambda session: files.file_edit(session, path="/w/src/a.py", edits=edits)) == 3
    assert machine.call(lambda session: files.file_read(session, path="/w/src/a.py")).content == b"1 2"
    with pytest.raises(GuestPathExists):
        machine.create("/w/src/a.py", "again")
    with pytest.raises(GuestPathInvalid, match="busy"):
        machine.call(lambda session: files.path_remove(session, path="/w/mount"))
    machine.run("umount /w/mount")
    machine.call(lambda session: files.path_rename(session, source="/w/src", destination="/w/moved"))
    machine.call(lambda session: files.path_remove(session, path="/w"))
    assert machine.run("ls -d /w").exit_code != 0


def test_a_directory_of_the_image_is_moved(machine: Machine) -> None:
    """It is in the lower layer of the overlay, where the kernel may refuse a rename."""
    before = machine.run("ls /etc | sort").stdout
    machine.run("cp -a /etc /saved")
    machine.call(lambda session: files.path_rename(session, source="/etc", destination="/etc-moved"))
    assert machine.run("ls /etc-moved | sort; ls -d /etc").stdout == before
    machine.call(lambda session: files.path_rename(session, source="/etc-moved", destination="/etc"))
    assert machine.run("ls /etc | sort").stdout == before


def test_a_folder_of_many_files_is_listed_as_far_as_it_is_shown(machine: Machine) -> None:
    folder = "/many/files"
    disk = "" if WHOLE else "mount -t tmpfs -o nr_inodes=0 none /many && "
    assert machine.run(f"mkdir /many && {disk} mkdir {folder} && touch {folder}/$(printf 'odd\\377')").exit_code == 0
    for start in range(1, FILES, FILES // 4):
        made = machine.run(f"cd {folder} && seq -w {start} {FILES} | head -n {FILES // 4} | xargs touch", **LONG)
        assert made.exit_code == 0
    found = machine.listed(folder)
    assert (len(found.entries), found.truncated) == (files.LIST_LIMIT, True)
    first = "1".zfill(len(str(FILES)))
    assert [entry.path for entry in found.entries[:2]] == [first, "2".zfill(len(first))]
    last = machine.call(lambda session: search.name_search(session, path=folder, query=str(FILES), **SEARCH))
    assert (last.files, last.truncated) == ([str(FILES)], False)
    odd = machine.call(lambda session: search.name_search(session, path=folder, query="odd", **SEARCH))
    assert odd.files == ["odd\udcff"]
    machine.call(lambda session: files.path_remove(session, path=folder))


def test_commands_end_at_their_timeout(machine: Machine) -> None:
    done = machine.run("echo begun; sleep 100", timeout_ms=2000, cwd="/tmp", env={"A": "b"})
    assert (done.stdout, done.exit_code, done.timed_out) == (b"begun\n", 124, True)


def test_the_search_program_is_brought_once_and_finds(machine: Machine) -> None:
    machine.create("/s/a.txt", "hay\nneedle one\n")
    machine.create("/s/.gitignore", "*.log\n")
    machine.create("/s/b.log", "needle two\n")
    machine.run("head -c 100000 /dev/urandom > /s/bin; ln -s / /s/up; printf 'needle\\0' > /s/zero")
    found = machine.call(lambda session: search.text_search(session, path="/s", query="needle", **SEARCH))
    assert [(match.file, match.line, match.text) for match in found.matches] == [
        ("./a.txt", 2, "needle one"),
        ("./b.log", 1, "needle two"),
    ]
    assert not found.truncated
    programs = machine.run("ls -d /dev/shm/.search-*; cat /proc/uptime")
    again = machine.call(lambda session: search.name_search(session, path="/", query="a.txt", **SEARCH))
    assert again.files == ["s/a.txt"]
    assert machine.run("ls -d /dev/shm/.search-*").stdout.count(b"\n") == 1 == programs.stdout.count(b".search-")
    listed = machine.listed("/s", gitignore=True)
    assert [entry.path for entry in listed.entries] == [".gitignore", "a.txt", "bin", "zero"]


def test_a_search_stops_when_enough_was_found_and_leaves_no_process(machine: Machine) -> None:
    machine.run("mkdir -p /s; yes needle | head -n 300000 > /s/many")
    options = {**SEARCH, "max_results": 3}
    found = machine.call(lambda session: search.text_search(session, path="/s/many", query="needle", **options))
    assert ([match.line for match in found.matches], found.truncated) == ([1, 2, 3], True)
    gone = "for _ in $(seq 20); do ps w | grep '[.]search-' || exit 0; sleep 1; done; exit 1"
    done = machine.run(gone)
    assert done.exit_code == 0, done.stdout


def test_a_line_of_many_megabytes_does_no_harm(machine: Machine) -> None:
    machine.create("/line/small", "one needle\n")
    machine.run(f"(printf needle; head -c {LINE} /dev/zero | tr '\\0' x; echo) > /line/long", **LONG)
    found = machine.call(lambda session: search.text_search(session, path="/line/long", query="needle", **SEARCH))
    assert [(match.line, len(match.text)) for match in found.matches] == [(1, 500)]
    found = machine.call(lambda session: search.text_search(session, path="/line", query="needle", **SEARCH))
    shown = ["./small"] if WHOLE else ["./long", "./small"]
    assert ([match.file for match in found.matches], found.truncated) == (shown, WHOLE)
