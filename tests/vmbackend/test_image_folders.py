"""The folders that an image's configuration names and no layer has, as a machine makes them at its start."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compiled import compile_program

SOURCES = Path(__file__).parents[2] / "vmbackend" / "guest" / "src"
MAIN = Path(__file__).with_name("directories_main.c")
FLAGS = ("-static", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
Make = Callable[..., list[str]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("program") / "directories"
    compile_program(target, FLAGS, [MAIN, SOURCES / "directories.c"], SOURCES)
    return target


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def make(program: Path, root: Path) -> Make:
    """Makes folders in the root; returns the lines for the boot log."""

    def make(*paths: str) -> list[str]:
        done = subprocess.run([program, root, *paths], check=True, capture_output=True, text=True)
        return done.stdout.splitlines()

    return make


def test_missing_folders_are_made_for_all_to_enter(make: Make, root: Path) -> None:
    assert make("/srv/app/data", "/", "/srv/ä b\n") == []
    for name in ("srv", "srv/app", "srv/app/data", "srv/ä b\n"):
        found = (root / name).stat()
        assert (found.st_mode & 0o7777, found.st_uid, found.st_gid) == (0o755, 0, 0)


def test_what_exists_is_left_as_it_is(make: Make, root: Path) -> None:
    (root / "app").mkdir(mode=0o700)
    os.chown(root / "app", 1000, 1000)
    assert make("/app") == []
    assert ((root / "app").stat().st_mode & 0o7777, (root / "app").stat().st_uid) == (0o700, 1000)


def test_links_lead_to_places_of_the_image(make: Make, root: Path, tmp_path: Path) -> None:
    """Also those that climb out of it, and those to where nothing is yet."""
    (root / "var").mkdir()
    (root / "var/current").symlink_to("../data/./7//files")
    (root / "app").symlink_to("/var/current")
    (root / "up").symlink_to("../../../outside")
    assert make("/app/cache", "/up/inner") == []
    assert (root / "data/7/files/cache").is_dir()
    assert (root / "outside/inner").is_dir()
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/file", "Not a directory"),
        ("/file/below", "Not a directory"),
        ("/round/x", "(Too many levels of symbolic links|Symbolic link loop)"),
        ("/chain", "(Too many levels of symbolic links|Symbolic link loop)"),
        ("/" + "n" * 300, "(File name too long|Filename too long)"),
        ("/a" * 3000, "(File name too long|Filename too long)"),
    ],
)
def test_a_folder_that_cannot_be_made_is_logged_and_the_next_is_made(
    make: Make, root: Path, path: str, reason: str
) -> None:
    (root / "file").write_text("x")
    (root / "round").symlink_to("round")
    for number in range(12):
        (root / f"link{number}").symlink_to(f"link{number + 1}")
    (root / "chain").symlink_to("link0")
    (line,) = make(path, "/next")
    assert line.startswith(f"cannot make the folder {path[:300]} of the image: ")
    assert re.search(reason, line)
    assert (root / "next").is_dir()
    assert (root / "file").read_text() == "x"
