"""The guest's removal of old logs, compiled for the host: folders of any depth and of any size."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.compiled import compile_program
from tests.vmbackend.deep_trees import deep_root, fill_levels

__all__ = ["deep_root"]
SOURCES = Path(__file__).parents[2] / "vmbackend" / "guest" / "src"
MAIN = Path(__file__).with_name("trees_main.c")
FLAGS = ("-static", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
DESCRIPTORS = 16


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("program") / "trees"
    compile_program(target, FLAGS, [MAIN, SOURCES / "trees.c"], SOURCES)
    return target


def empty(program: Path, folder: Path) -> None:
    subprocess.run([str(program), str(folder), str(DESCRIPTORS)], check=True, timeout=120)


@pytest.mark.parametrize("levels", [0, 1, 17, 40, 5000])
def test_folders_of_any_depth_are_removed(program: Path, deep_root: Path, levels: int) -> None:
    for number in range(3):
        (deep_root / f"f{number}").mkdir()
        fill_levels(deep_root / f"f{number}", levels)
    (deep_root / "it.log").touch()
    empty(program, deep_root)
    assert list(deep_root.iterdir()) == []


def test_wide_folders_are_removed(program: Path, tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / "wide" / str(number) / "a" / "b").mkdir(parents=True)
        (tmp_path / "wide" / str(number) / "file").touch()
        (tmp_path / "wide" / f"file{number}").touch()
    empty(program, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_not_followed(program: Path, tmp_path: Path) -> None:
    outside, logs = tmp_path / "outside", tmp_path / "logs"
    outside.mkdir()
    (outside / "kept").touch()
    (logs / "folder").mkdir(parents=True)
    (logs / "folder" / "link").symlink_to(outside)
    (logs / "loop").symlink_to(".")
    empty(program, logs)
    assert list(logs.iterdir()) == []
    assert (outside / "kept").exists()
    logs.rmdir()
    logs.symlink_to(outside)
    empty(program, logs)
    assert (outside / "kept").exists()


def test_a_folder_that_does_not_exist_is_no_error(program: Path, tmp_path: Path) -> None:
    empty(program, tmp_path / "absent")


@pytest.mark.host
def test_what_cannot_be_removed_does_not_hold_it_up(program: Path, tmp_path: Path) -> None:
    """A mount stands for what the file system refuses to remove, as a file with an attribute."""
    kept = tmp_path / "a" / "b" / "kept"
    kept.mkdir(parents=True)
    for name in ("a/b/file", "a/file", "a/b/z", "file"):
        (tmp_path / name).touch()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(kept)], check=True)
    try:
        (kept / "file").touch()
        empty(program, tmp_path)
        left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    finally:
        subprocess.run(["umount", str(kept)], check=True)
    assert left == ["a", "a/b", "a/b/kept"]
