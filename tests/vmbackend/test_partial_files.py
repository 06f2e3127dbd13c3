"""The search for partial files at the start of a machine, in folders on the host that change while it runs.

The program sees the folder of a test as its root directory. What is listed is `run/kit/data/upper` below it, what is
removed is in the folder itself, as with the two views of an overlay; both are made the same where a test does not want
them to differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compiled import compile_program

SOURCES = Path(__file__).parents[2] / "vmbackend" / "guest" / "src"
MAIN = Path(__file__).with_name("partials_main.c")
FLAGS = ("-static", "-Wl,--wrap=readdir", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
NAME = ".partial-0123456789abcdef"
CHANNEL = "dev/shm/.files-0123456789abcdef"
LEVELS = 2100  # of two bytes each: beyond PATH_MAX

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("program") / "partials"
    compile_program(target, FLAGS, [MAIN, SOURCES / "partials.c", SOURCES / "own_names.c"], SOURCES)
    return target


class Machine:
    """A folder in place of a machine that died."""

    def __init__(self, root: Path, program: Path) -> None:
        self.root, self._program = root, program
        self.upper = root / "run/kit/data/upper"
        self.upper.mkdir(parents=True)
        self.running = root / "run/kit/data/running"
        self.running.touch()
        self.unclean = root / "run/kit/unclean"
        self.unclean.touch()

    def make(self, *paths: str) -> None:
        """Make files in both views."""
        for path in paths:
            for view in (self.upper, self.root):
                (view / path).parent.mkdir(parents=True, exist_ok=True)
                (view / path).touch()

    def exists(self, path: str) -> bool:
        return os.path.lexists(self.root / path)

    def search(self, *, killed: bool = False) -> None:
        """Remove partial files, or begin to, and end the machine in order."""
        subprocess.run([str(self._program), str(self.root), *["killed"] * killed], check=True, timeout=120)


@pytest.fixture
def machine(tmp_path: Path, program: Path) -> Iterator[Machine]:
    root = tmp_path / "machine"
    yield Machine(root, program)
    # Python's own removal of directories cannot go so deep.
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(root)], check=True)


def in_deepest(top: Path, levels: int, name: str) -> int:
    """Make nested directories with an empty file in the last; returns a descriptor of that one."""
    fd = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT, dir_fd=fd))
    return fd


@contextmanager
def changing(script: str, *arguments: Path) -> Iterator[None]:
    """Run the body of an endless loop in another process, from the end of its first pass on."""
    code = f"import os, sys\nmake = lambda p: os.close(os.open(p, os.O_CREAT))\nn = 0\nwhile True:\n{script}"
    code += "    if not n:\n        print(flush=True)\n    n += 1\n"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"\n"
            yield
            assert process.poll() is None
        finally:
            process.kill()


def test_only_partial_files_are_removed(machine: Machine) -> None:
    kept = [".partial-0123456789abcde", ".partial-0123456789ABCDEF", "x" + NAME, f"folder/{NAME}/file", "file"]
    machine.make(NAME, f"a b/{NAME}", *kept)
    os.mkfifo(machine.upper / ".partial-00000000000000ff")
    os.mkfifo(machine.root / ".partial-00000000000000ff")
    machine.search()
    assert not machine.exists(NAME)
    assert not machine.exists(f"a b/{NAME}")
    assert all(machine.exists(path) for path in kept)
    assert machine.exists(".partial-00000000000000ff")


def test_a_file_that_a_transfer_of_this_run_tracks_is_kept(machine: Machine) -> None:
    tracked, other = f"folder/{NAME}", "folder/.partial-00000000000000aa"
    machine.make(tracked, other)
    for channel in (CHANNEL, "dev/shm/.files-00"):
        (machine.root / channel).mkdir(parents=True)
    (machine.root / CHANNEL / NAME.removeprefix(".")).symlink_to(f"/{tracked}")
    machine.search()
    assert machine.exists(tracked)
    assert not machine.exists(other)


def test_what_is_no_folder_of_a_channel_tracks_nothing(machine: Machine) -> None:
    machine.make(NAME)
    link = NAME.removeprefix(".")
    for channel in ("files-00", ".search-00", ".files-02"):
        (machine.root / "dev/shm" / channel).mkdir(parents=True)
        (machine.root / "dev/shm" / channel / link[: -(channel == ".files-02") or None]).touch()
    (machine.root / "dev/shm/.files-00").touch()
    (machine.root / "dev/shm/.files-01").symlink_to("files-00")
    machine.search()
    assert not machine.exists(NAME)


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_vanishes_after_it_was_read_does_not_end_the_search(machine: Machine, kind: str) -> None:
    folders = [f"f{number}" for number in range(10)]
    machine.make(*(f"{folder}/{NAME}" for folder in folders))
    for folder in folders:
        path = machine.upper / folder / "vanishing"
        {"file": path.touch, "folder": path.mkdir, "link": lambda path=path: path.symlink_to("file")}[kind]()
    machine.search()
    assert not [folder for folder in folders if machine.exists(f"{folder}/{NAME}")]
    assert not list(machine.upper.rglob("vanishing"))


def test_a_folder_replaced_by_a_link_before_it_is_opened_is_passed_over(machine: Machine) -> None:
    machine.make(f"outside/inner/{NAME}", f"a/{NAME}", f"z/{NAME}")
    (machine.upper / "outside").rename(machine.root / "unlisted")
    for number in range(10):
        (machine.upper / f"swapped{number}").mkdir()
        (machine.root / f"swapped{number}").symlink_to("/outside")
    machine.search()
    assert machine.exists(f"outside/inner/{NAME}")
    assert not machine.exists(f"a/{NAME}")
    assert not machine.exists(f"z/{NAME}")


def test_files_that_vanish_during_the_search_do_not_end_it(machine: Machine) -> None:
    script = """
    for i in range(300): make(f"{sys.argv[1]}/{i}")
    for i in range(300): os.unlink(f"{sys.argv[1]}/{i}")
    os.mkdir(f"{sys.argv[1]}/d")
    os.rmdir(f"{sys.argv[1]}/d")
"""
    folders = [f"f{number}" for number in range(20)]
    busy = machine.upper / "f10"
    busy.mkdir()
    with changing(script, busy):
        for _ in range(20):
            machine.unclean.touch()
            machine.make(*(f"{folder}/{NAME}" for folder in folders))
            machine.search()
            assert not [folder for folder in folders if machine.exists(f"{folder}/{NAME}")]


@pytest.mark.parametrize("levels", [40, 1500])
def test_partial_files_in_deep_directories_are_removed(machine: Machine, levels: int) -> None:
    os.close(in_deepest(machine.upper, levels, NAME))
    deepest = in_deepest(machine.root, levels, NAME)
    machine.search()
    with pytest.raises(FileNotFoundError):
        os.stat(NAME, dir_fd=deepest)
    os.close(deepest)


def test_directories_deeper_than_any_path_do_not_end_the_search(machine: Machine) -> None:
    folders = [f"f{number}" for number in range(10)]
    machine.make(*(f"{folder}/{NAME}" for folder in folders))
    os.close(in_deepest(machine.upper / "f5", LEVELS, "file"))
    machine.search()
    assert not [folder for folder in folders if machine.exists(f"{folder}/{NAME}")]


def test_links_are_neither_followed_nor_removed(machine: Machine) -> None:
    (machine.root / "outside").mkdir()
    (machine.root / "outside" / NAME).touch()
    for view in (machine.upper, machine.root):
        (view / "link").symlink_to("/outside")
        (view / "loop").symlink_to(".")
        (view / ".partial-00000000000000ff").symlink_to("/outside/" + NAME)
    machine.search()
    assert machine.exists(f"outside/{NAME}")
    assert machine.exists(".partial-00000000000000ff")


@pytest.mark.parametrize("replaced", ["a", "a/b", "a/b/c"])
def test_a_folder_replaced_by_a_link_after_it_was_read_leads_nowhere(machine: Machine, replaced: str) -> None:
    """The file is listed where the other view has a link in its path already."""
    path = f"a/b/c/{NAME}"
    machine.make(path)
    (machine.root / replaced).rename(machine.root / "outside")
    (machine.root / replaced).symlink_to("/outside")
    machine.make(f"z/{NAME}")
    machine.search()
    assert machine.exists(path.replace(replaced, "outside", 1))
    assert not machine.exists(f"z/{NAME}")


def test_folders_that_are_replaced_by_links_during_the_search_lead_nowhere(machine: Machine) -> None:
    script = """
    for view in sys.argv[1:]:
        os.rename(f"{view}/folder", f"{view}/aside")
        os.symlink("/outside", f"{view}/folder")
        os.unlink(f"{view}/folder")
        os.rename(f"{view}/aside", f"{view}/folder")
"""
    machine.make("folder/file")
    (machine.root / "outside").mkdir()
    (machine.root / "outside" / NAME).touch()
    with changing(script, machine.upper, machine.root):
        for _ in range(50):
            machine.unclean.touch()
            machine.make(f"z/{NAME}")
            machine.search()
            assert machine.exists(f"outside/{NAME}")
            assert not machine.exists(f"z/{NAME}")


def test_the_mark_of_a_machine_that_died_stays_until_a_search_came_to_its_end(machine: Machine) -> None:
    machine.make(NAME)
    machine.search()
    assert not machine.unclean.exists()
    assert not machine.running.exists()


def test_a_search_that_is_killed_leaves_the_mark(machine: Machine) -> None:
    machine.make(NAME)
    machine.search(killed=True)
    assert machine.running.exists()
    machine.search()
    assert not machine.exists(NAME)
    assert not machine.running.exists()
