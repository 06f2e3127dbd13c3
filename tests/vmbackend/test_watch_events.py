"""`guest watch`: what it reports of changes below a folder, against what is there."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

import pytest

from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.watch_factory import (
    ADDED,
    CHANGED,
    GONE,
    OVERFLOWED,
    REMOVED,
    RENAMED,
    Event,
    Picture,
    Watch,
    folders_of,
    kinds,
    require_begun,
)

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")

RENAMEAT2, AT_FDCWD, RENAME_EXCHANGE = 316, -100, 2
Start = Callable[..., Watch]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@pytest.fixture
def watch(hold_program: Path, tree: Path) -> Iterator[Start]:
    started: list[Watch] = []

    def start(*patterns: str) -> Watch:
        started.append(Watch(hold_program, tree, *patterns))
        require_begun(started[-1], None if patterns else folders_of(tree))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_a_file_is_added_changed_and_removed(tree: Path, watch: Start) -> None:
    seen = watch()
    (tree / "file").write_text("1")
    assert kinds(seen.read_all()) == [(ADDED, b"file")]
    seen.process.send_signal(signal.SIGSTOP)  # all of them are within a moment for it
    for _ in range(20):
        (tree / "file").write_text("2")
    seen.process.send_signal(signal.SIGCONT)
    assert kinds(seen.read_all()) == [(CHANGED, b"file")]
    (tree / "file").unlink()
    assert kinds(seen.read_all()) == [(REMOVED, b"file")]


def test_a_new_folder_with_content_is_reported_whole_and_once(tree: Path, tmp_path: Path, watch: Start) -> None:
    (tmp_path / "from/a/b").mkdir(parents=True)
    for name in ("from/1", "from/a/2", "from/a/b/3"):
        (tmp_path / name).touch()
    seen = watch()
    (tmp_path / "from").rename(tree / "to")
    paths = [b"to", b"to/1", b"to/a", b"to/a/2", b"to/a/b", b"to/a/b/3"]
    events = seen.read_all()
    assert sorted(kinds(events)) == [(ADDED, path) for path in paths]
    for path in paths[1:]:
        parent = path.rpartition(b"/")[0]
        order = [event.path for event in events]
        assert order.index(parent) < order.index(path)
    (tree / "to/a/b/4").touch()
    assert kinds(seen.read_all()) == [(ADDED, b"to/a/b/4")]


def test_renames_are_paired_and_later_paths_are_right(tree: Path, watch: Start) -> None:
    (tree / "a/b").mkdir(parents=True)
    (tree / "file").touch()
    seen = watch()
    (tree / "file").rename(tree / "a/other")
    (tree / "a").rename(tree / "c")
    assert seen.read_all() == [
        Event(RENAMED, False, b"file", b"a/other"),
        Event(RENAMED, True, b"a", b"c"),
    ]
    (tree / "c/b/new").touch()
    assert kinds(seen.read_all()) == [(ADDED, b"c/b/new")]


def test_a_rename_onto_what_is_there_is_a_change_of_it(tree: Path, tmp_path: Path, watch: Start) -> None:
    for name in ("old", "a/old"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("1")
    (tmp_path / "outside").write_text("2")
    seen = watch()
    (tmp_path / "outside").rename(tree / "old")
    assert kinds(seen.read_all()) == [(CHANGED, b"old")]
    (tree / "new").write_text("3")
    assert kinds(seen.read_all()) == [(ADDED, b"new")]
    (tree / "new").rename(tree / "a/old")
    assert kinds(seen.read_all()) == [(REMOVED, b"new"), (CHANGED, b"a/old")]
    (tree / "a").rename(tree / "b")
    (tree / "old").rename(tree / "b/old")
    assert kinds(seen.read_all()) == [(RENAMED, b"a"), (REMOVED, b"old"), (CHANGED, b"b/old")]
    (tree / "b/old").unlink()
    (tmp_path / "outside").write_text("4")
    (tmp_path / "outside").rename(tree / "b/old")
    assert kinds(seen.read_all()) == [(REMOVED, b"b/old"), (ADDED, b"b/old")]


def test_names_of_thousands_of_files_are_known(tree: Path, tmp_path: Path, watch: Start) -> None:
    for number in range(3000):
        (tree / f"{number}").touch()
        (tmp_path / f"{number}").touch()
    seen = watch()
    for number in range(0, 3000, 2):
        (tree / f"{number}").unlink()
    seen.read_all()
    for number in range(3000):
        (tmp_path / f"{number}").rename(tree / f"{number}")
    found = {int(event.path): event.kind for event in seen.read_all()}
    assert found == {number: CHANGED if number % 2 else ADDED for number in range(3000)}


def test_names_of_the_platform_are_never_told(tree: Path, watch: Start) -> None:
    (tree / "there").write_text("1")
    seen = watch()
    for name in ("there", "new"):
        own = tree / ".partial-0123456789abcdef"
        own.write_text("2")
        own.chmod(0o600)
        own.rename(tree / name)
    assert kinds(seen.read_all()) == [(CHANGED, b"there"), (ADDED, b"new")]
    (tree / ".files-0123456789abcdef/link").mkdir(parents=True)
    (tree / ".ask-0123456789abcdef").mkdir()
    (tree / ".partial-0123456789abcdef").touch()
    (tree / ".partial-0123456789abcdef").unlink()
    assert seen.read_all() == []
    for name in (".ask-agents", ".ask-config", ".partial-of-mine"):
        (tree / name).touch()
        assert kinds(seen.read_all()) == [(ADDED, name.encode())]


@pytest.mark.parametrize("kinds", ["ff", "fd", "df", "dd"])
def test_two_entries_are_exchanged(tree: Path, watch: Start, kinds: str) -> None:
    for name, kind in zip("ab", kinds, strict=True):
        if kind == "f":
            (tree / name).touch()
        else:
            (tree / name / f"in_{name}").mkdir(parents=True)
    seen, picture = watch(), Picture(tree)
    one, two = os.fsencode(tree / "a"), os.fsencode(tree / "b")
    assert ctypes.CDLL(None).syscall(RENAMEAT2, AT_FDCWD, one, AT_FDCWD, two, RENAME_EXCHANGE) == 0
    for event in seen.read_all():
        picture.apply(event)
    assert picture.paths == picture.real()


def test_what_leaves_the_tree_is_removed_and_not_watched_any_more(tree: Path, tmp_path: Path, watch: Start) -> None:
    (tree / "a/b").mkdir(parents=True)
    seen = watch()
    (tree / "a").rename(tmp_path / "outside")
    assert kinds(seen.read_all()) == [(REMOVED, b"a")]
    (tmp_path / "outside/b/file").touch()
    assert seen.read_all() == []


def test_ignored_folders_are_not_watched(tree: Path, watch: Start) -> None:
    (tree / "node_modules/deep").mkdir(parents=True)
    (tree / "src/build").mkdir(parents=True)
    seen = watch("node_modules/", "# a comment", "/src/build", "*.log", "!keep.log")
    inotify = [path for path in Path(f"/proc/{seen.process.pid}/fdinfo").iterdir() if "inotify" in path.read_text()]
    assert sum(text.startswith("inotify wd") for path in inotify for text in path.read_text().splitlines()) == 2
    for name in ("node_modules/deep/x", "src/build/x", "src/a.log", "src/keep.log", "node_modules2"):
        (tree / name).touch()
    assert kinds(seen.read_all()) == [(ADDED, b"src/keep.log"), (ADDED, b"node_modules2")]
    (tree / "src/keep.log").rename(tree / "src/b.log")
    (tree / "src/a.log").rename(tree / "src/c")
    assert kinds(seen.read_all()) == [(REMOVED, b"src/keep.log"), (ADDED, b"src/c")]


def test_names_may_be_any_bytes(tree: Path, watch: Start) -> None:
    seen = watch()
    name = b"\xff\xfe \n\x1b[2J"
    (tree / os.fsdecode(name)).mkdir()
    (tree / os.fsdecode(name) / "x").touch()
    assert [event.path for event in seen.read_all()] == [name, name + b"/x"]


def test_links_are_entries_and_not_followed(tree: Path, tmp_path: Path, watch: Start) -> None:
    (tmp_path / "outside").mkdir()
    seen = watch()
    (tree / "link").symlink_to(tmp_path / "outside")
    assert seen.read_all() == [Event(ADDED, False, b"link", b"")]
    (tmp_path / "outside/file").touch()
    assert seen.read_all() == []


def test_the_end_of_the_folder_is_reported(tree: Path, watch: Start) -> None:
    seen = watch()
    tree.rmdir()
    events = seen.read_all()
    assert [event.kind for event in events] == [GONE]
    assert seen.process.wait(timeout=30) == 0


def test_a_folder_that_is_not_there_says_so(hold_program: Path, tmp_path: Path) -> None:
    seen = Watch(hold_program, tmp_path / "none")
    event = seen.read(30)
    assert event is not None
    assert (event.kind, event.other) == (GONE, b"No such file or directory")
    seen.close()


def test_a_slow_reader_gets_an_overflow_and_it_goes_on(tree: Path, watch: Start) -> None:
    seen = watch()
    for number in range(80_000):
        os.mknod(tree / f"{number}-{'x' * 200}")
    time.sleep(1)
    events = seen.read_all()
    assert (OVERFLOWED, b"") in kinds(events)
    assert {event.other for event in events if event.kind == OVERFLOWED} <= {b"slow_reader", b"queue_overflow"}
    (tree / "after").touch()
    assert kinds(seen.read_all()) == [(ADDED, b"after")]


def test_an_overflow_of_the_kernels_queue_is_reported_and_it_goes_on(tree: Path, watch: Start) -> None:
    (tree / "sub").mkdir()
    seen = watch()
    seen.process.send_signal(signal.SIGSTOP)
    for number in range(int(Path("/proc/sys/fs/inotify/max_queued_events").read_text()) + 100):
        os.mknod(tree / str(number))
    (tree / "late").mkdir()
    seen.process.send_signal(signal.SIGCONT)
    events = seen.read_all()
    assert [(event.path, event.other) for event in events if event.kind == OVERFLOWED] == [(b"", b"queue_overflow")]
    for folder in (tree, tree / "sub", tree / "late"):
        (folder / "after").touch()
    assert sorted(kinds(seen.read_all())) == [(ADDED, b"after"), (ADDED, b"late/after"), (ADDED, b"sub/after")]


def test_more_directories_than_the_kernel_lets_it_watch_are_reported_and_it_goes_on(
    hold_program: Path, tree: Path
) -> None:
    (tree / "there").mkdir()
    seen = Watch(hold_program, tree, folders=4)
    try:
        require_begun(seen, 2)
        for name in ("a", "b", "c", "d", "e"):
            (tree / name).mkdir()
        events = seen.read_all()
        assert {event.path for event in events if event.kind == ADDED} == {b"a", b"b", b"c", b"d", b"e"}
        lost = [event for event in events if event.kind == OVERFLOWED]
        assert [(event.path, event.other) for event in lost] == [
            (b"c", b"too_many_directories"), (b"", b"too_many_directories"),
        ]  # fmt: skip
        for folder in ("", "there", "b"):
            (tree / folder / "after").touch()
        assert sorted(kinds(seen.read_all())) == [(ADDED, b"after"), (ADDED, b"b/after"), (ADDED, b"there/after")]
    finally:
        seen.close()


PATTERNS = [
    *(
        "a",
        "/a",
        "a/",
        "*.c",
        "b/*.c",
        "**/b",
        "b/**",
        "a/**/b",
        "!b",
        "[ab]",
        "[!a]x",
        "\\#a",
        "\\!a",
        "a?",
        "b/a",
        "x ",
    ),
    *("[a-c]/", "**", "a**b", "[[:digit:]]", "a\\*", "\\a", "[b-]", "*a*b*", "#a", "/**/x.c"),
]
PATHS = [
    *("a", "b", "b/a", "a/b", "x.c", "b/x.c", "b/b/x.c", "a/x/b", "bx", "ax", "#a", "!a", "ab", "c", "x", "b/c/d"),
    *("a/x/y/b", "a1b", "7", "a*", "-x"),
]


def ignored_wrongly(program: Path, tree: Path, patterns: list[str]) -> set[str]:
    """Files that are reported though git ignores them, or the other way round."""
    (tree / "new").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(tree)], check=True)
    (tree / ".git/info/exclude").write_text("".join(f"{pattern}\n" for pattern in patterns))
    seen = Watch(program, tree, "/.git", *patterns)
    require_begun(seen)
    made = set()
    for path in PATHS:
        target = tree / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
        except OSError:
            continue
        made.add(path)
    found = {event.path.decode() for event in seen.read_all() if event.kind == ADDED and not event.is_folder}
    seen.close()
    files = {path for path in made if (tree / path).is_file()}
    answer = subprocess.run(
        ["git", "-C", str(tree), "check-ignore", "--no-index", "--stdin"],
        input="\n".join(sorted(files)), capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    return found ^ (files - set(answer))


def test_patterns_ignore_what_git_ignores(hold_program: Path, tmp_path: Path) -> None:
    """In 25 folders at once, as a watch is waited for until it is quiet."""
    chances = [random.Random(seed) for seed in range(25)]
    chosen = [chance.choices(PATTERNS, k=chance.randrange(1, 5)) for chance in chances]
    trees = [tmp_path / str(number) for number in range(25)]
    with ThreadPoolExecutor(8) as pool:
        wrong = pool.map(ignored_wrongly, repeat(hold_program), trees, chosen)
        assert [(patterns, paths) for patterns, paths in zip(chosen, wrong, strict=True) if paths] == []
