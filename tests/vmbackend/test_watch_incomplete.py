"""`guest watch` where folders cannot be entered: for the moment, or as something is mounted over them."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.vmbackend.local_dropbear import missing_requirement
from tests.vmbackend.watch_factory import ADDED, GONE, OVERFLOWED, REMOVED, Event, Opens, Watch, kinds, ready_watch

pytestmark = pytest.mark.skipif(missing_requirement() is not None, reason="needs root and tools")
MANY = 10_000  # folders that take longer than a piece of an attempt
WINDOW = 4.0  # seconds
DEADLINE = 60.0


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@contextmanager
def few_files(watch: Watch, free: int) -> Iterator[None]:
    """The program may open no more files than that."""
    pid = watch.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    few = len(list(Path(f"/proc/{pid}/fd").iterdir())) + free
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)


@contextmanager
def mounted(source: Path, place: Path) -> Iterator[None]:
    subprocess.run(["mount", "--bind", str(source), str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def make_doubtful(watch: Watch, folder: Path, outside: Path) -> None:
    """Have all folders of the watch scanned: something happens in one whose new place is not known."""
    watch.process.send_signal(signal.SIGSTOP)  # both are within a moment for it
    folder.rename(outside)
    (outside / "file").touch()
    watch.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("free", [0, 1])
def test_a_folder_that_could_not_be_entered_is_entered_without_another_event(
    hold_program: Path, tree: Path, free: int
) -> None:
    """With one file the program may open the folder of the watch, and none below it."""
    (tree / "a").mkdir()
    with ready_watch(hold_program, tree) as seen:
        with few_files(seen, free):
            (tree / "a/b/c").mkdir(parents=True)
            (tree / "a/b/c/file").touch()
            assert kinds(seen.read_all()) == [(ADDED, b"a/b")]
        # It is reported once more, as it was not watched when it came.
        found = [event for _ in range(3) if (event := seen.read(DEADLINE))]
        assert kinds(found) == [(ADDED, b"a/b"), (ADDED, b"a/b/c"), (ADDED, b"a/b/c/file")]


def test_a_folder_in_that_of_the_watch_is_entered_without_another_event(hold_program: Path, tree: Path) -> None:
    """With one file the program has that of the watch open, and cannot open what is in it."""
    with ready_watch(hold_program, tree) as seen:
        with few_files(seen, 1):
            (tree / "b/c").mkdir(parents=True)
            assert kinds(seen.read_all()) == [(ADDED, b"b")]
        found = [event for _ in range(2) if (event := seen.read(DEADLINE))]
        assert kinds(found) == [(ADDED, b"b"), (ADDED, b"b/c")]


@pytest.mark.parametrize("written", [False, True])
def test_what_cannot_be_entered_is_tried_less_and_less_often(hold_program: Path, tree: Path, written: bool) -> None:
    """Whether files are written or not, but at once after a change of folders."""
    for name in ("a", "x"):
        (tree / name).mkdir()
    with ready_watch(hold_program, tree) as seen:
        with few_files(seen, 1):
            (tree / "a/b").mkdir()
            assert kinds(seen.read_all()) == [(ADDED, b"a/b")]
            opens, until = Opens(tree), time.monotonic() + WINDOW
            while time.monotonic() < until:
                if written:
                    (tree / "a/file").write_text("x")
                time.sleep(0.02)
            # An attempt opens the folder of the watch twice: one after 1.5 s, one after 3.5 s, one after 7.5 s.
            assert opens.count() <= 6
            opens.close()
            seen.read_all()
        (tree / "x").rename(tree / "y")
        assert (ADDED, b"a/b") in kinds(seen.read_all(2))


@pytest.mark.parametrize("replaced", [False, True])
def test_a_watch_whose_folder_is_elsewhere_ends(hold_program: Path, tmp_path: Path, replaced: bool) -> None:
    """No event of the folder tells of that: one above it was renamed."""
    tree = tmp_path / "above/tree"
    tree.mkdir(parents=True)
    with ready_watch(hold_program, tree) as seen:
        (tmp_path / "above").rename(tmp_path / "other")
        if replaced:
            tree.mkdir(parents=True)
        (tmp_path / "other/tree/new").mkdir()
        assert kinds(seen.read_all()) == [(ADDED, b"new"), (GONE, b"")]


def test_a_folder_that_something_is_mounted_over_is_reported_and_not_tried_again(
    hold_program: Path, tree: Path, tmp_path: Path
) -> None:
    for folder in (tree / "big/deep/deeper/deepest", tree / "left", tmp_path / "other"):
        folder.mkdir(parents=True)
    with ready_watch(hold_program, tree) as seen, mounted(tmp_path / "other", tree / "big/deep"):
        make_doubtful(seen, tree / "left", tmp_path / "outside")
        assert seen.read_all() == [
            Event(REMOVED, True, b"left", b""),
            Event(OVERFLOWED, True, b"big/deep", b"mounted_over"),
        ]
        opens = Opens(tree)
        (tree / "big/file").touch()
        assert kinds(seen.read_all(2)) == [(ADDED, b"big/file")]
        assert opens.count() == 0
        opens.close()


def test_a_folder_below_a_mount_is_reported_by_the_place_of_the_mount(
    hold_program: Path, tree: Path, tmp_path: Path
) -> None:
    for folder in (tree / "a/b/c", tmp_path / "other"):
        folder.mkdir(parents=True)
    with ready_watch(hold_program, tree) as seen:
        covered = os.open(tree / "a/b/c", os.O_PATH)
        with mounted(tmp_path / "other", tree / "a"):
            os.mkdir("new", dir_fd=covered)
            assert kinds(seen.read_all()) == [(ADDED, b"a/b/c/new"), (OVERFLOWED, b"a")]
        os.close(covered)


def test_events_are_read_while_many_folders_are_tried_again(hold_program: Path, tree: Path, tmp_path: Path) -> None:
    """Folders are tried in the order in which they were found: `first` before those of `many`, the deepest last."""
    for folder in (tree / "first", tree / "left", tree / "x/x/x", tmp_path / "other", tree / "many"):
        folder.mkdir(parents=True)
    for number in range(MANY):
        (tree / f"many/{number}").mkdir()
    events: list[Event] = []
    other, until = tmp_path / "other", time.monotonic() + DEADLINE
    with (
        ready_watch(hold_program, tree) as seen, mounted(other, tree / "first"), mounted(other, tree / "x/x/x"),
    ):  # fmt: skip
        make_doubtful(seen, tree / "left", tmp_path / "outside")
        while not events or kinds(events)[-1] != (OVERFLOWED, b"x/x/x"):
            assert time.monotonic() < until
            os.mknod(tree / f"file{len(events)}-{time.monotonic_ns()}")
            if event := seen.read(0.001):
                events.append(event)
    order = kinds(events)
    between = order[order.index((OVERFLOWED, b"first")) + 1 : -1]
    assert ADDED in {kind for kind, _ in between}
