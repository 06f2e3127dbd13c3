"""`guest walk` of the kit's program, as a program: patterns in the syntax of gitignore, compared with git itself."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from vmbackend.errors import GuestUnreachable
from vmbackend.guest.walks import read_records

from .local_dropbear import compile_helper

NAMES = [
    "a",
    "a.log",
    "b/a.log",
    "b/c/a",
    "b/c/d/a",
    "docs/x",
    "b/docs/x",
    "build/y",
    "b/build",
    "[x]",
    "A",
    "x#",
    "sp ace",
]
PATTERNS = [
    ["*.log"],
    ["/a"],
    ["a"],
    ["docs/"],
    ["build/"],
    ["/docs/"],
    ["b/*"],
    ["b/**"],
    ["**/a"],
    ["b/**/a"],
    ["**/c/**"],
    ["b/c"],
    ["c"],
    ["b/?"],
    ["[ab]"],
    ["[!ab]"],
    ["\\[x\\]"],
    ["*.log", "!a.log"],
    ["*", "!a"],
    ["*.log", "!/b/a.log"],
    ["b/docs/x"],
    ["/**/x"],
    ["sp ace"],
    ["**/**/a"],
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("musl-gcc") is None:
        pytest.skip("needs musl-tools")
    target = tmp_path_factory.mktemp("kit") / "guest"
    compile_helper(target)
    return target


def walked(program: Path, folder: Path, *words: str, stdin: bytes = b"", limit: int = 1000) -> list[str]:
    done = subprocess.run([program, "walk", *words], cwd=folder, input=stdin, capture_output=True, check=True)
    return [os.fsdecode(os.fsencode(entry.path)) for entry in read_records(done.stdout, limit, False)[0]]


def files(folder: Path) -> Path:
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    return folder


@pytest.mark.parametrize("patterns", PATTERNS, ids=" ".join)
def test_patterns_leave_out_what_git_ignores(program: Path, tmp_path: Path, patterns: list[str]):
    folder = files(tmp_path / "tree")
    subprocess.run(["git", "init", "-q", tmp_path / "repo"], check=True)
    (tmp_path / "repo/.git/info/exclude").write_text("\n".join(patterns) + "\n")
    git = ["git", f"--git-dir={tmp_path}/repo/.git", f"--work-tree={folder}", "ls-files", "-z", "--others"]
    shown = subprocess.run([*git, "--exclude-standard"], cwd=folder, capture_output=True, check=True).stdout
    wanted = [os.fsdecode(name) for name in shown.split(b"\0") if name]
    found = [name for name in walked(program, folder, "64", "1000", *patterns) if (folder / name).is_file()]
    assert sorted(found) == sorted(wanted)


def test_named_paths_are_described_and_those_that_are_gone_left_out(program: Path, tmp_path: Path):
    files(tmp_path)
    assert walked(program, tmp_path, "-", "1000", stdin=b"a\0none\0b/c\0./x#\0") == ["a", "b/c", "./x#"]


def test_a_deep_tree_ends_where_no_request_could_name_it(program: Path, tmp_path: Path):
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("x" * 200, dir_fd=folder)
        below = os.open("x" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    assert len(walked(program, tmp_path, "64", "1000")) == 4094 // 201


def test_many_stars_take_no_time(program: Path, tmp_path: Path):
    (tmp_path / ("a" * 250)).write_text("")
    assert len(walked(program, tmp_path, "64", "10", "*a" * 100 + "b")) == 1
    deep = tmp_path / "/".join(["a"] * 60)
    deep.mkdir(parents=True)
    assert len(walked(program, tmp_path, "64", "100", "**/a/" * 30 + "b")) == 61


def test_patterns_of_many_stars_are_decided(program: Path, tmp_path: Path):
    folder = "a" * 250
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "aaab").write_text("")
    # The longer name is the one that does not match.
    assert walked(program, tmp_path, "64", "10", "**/" + "*a" * 3 + "b") == [folder]
    (tmp_path / folder / ("a" * 30 + "b")).write_text("")
    assert walked(program, tmp_path, "64", "10", "aaab", "**/" + "*a" * 20 + "b") == [folder]


@pytest.mark.parametrize(
    "data",
    [b"nonsense\0\0", b"f-r 1 1 a\0\0" * 3, b"f-r 1 1 a\0", b"f-r 99999999999999999999 1 a\0\0", b"xyz 1 1 a\0\0"],
)
def test_what_is_no_record_is_refused(data: bytes):
    with pytest.raises(GuestUnreachable):
        read_records(data, 2, False)


def test_the_rest_of_a_record_that_was_cut_is_dropped():
    entries, more = read_records(b"f-r 1 1 a\0\0f-r 1 1 b", 9, True)
    assert ([entry.path for entry in entries], more) == (["a"], True)
