"""A build of an image that dies leaves nothing mounted, and what an earlier one left mounted is not emptied."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vmbackend.errors import ImageBroken
from vmbackend.images import build
from vmbackend.images.process import run_tool
from vmbackend.images.types import ImageCancelled, Job, never_cancelled
from vmbackend.mounts import mounted_below

pytestmark = pytest.mark.host
ROOT = Path(build.__file__).parents[2]
MOUNTS_AND_STAYS = "mount -t tmpfs none {0} && touch {1} && sleep 7345"


def job(cancelled: Callable[[], bool] = never_cancelled) -> Job:
    return Job(lambda *_: None, time.monotonic() + 60, cancelled)


def wait_until_ended(folder: Path) -> None:
    """Of all processes that name the folder."""
    for _ in range(200):
        if not (found := [entry for entry in Path("/proc").glob("[0-9]*") if names(entry, folder)]):
            return
        time.sleep(0.05)
    raise AssertionError(found)


def names(process: Path, folder: Path) -> bool:
    try:
        return process.name != str(os.getpid()) and os.fsencode(folder) in (process / "cmdline").read_bytes()
    except OSError:
        return False


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """What an earlier version's build has left: a folder of the host, with a file, mounted in its scratch."""
    source, point = tmp_path / "of the host", tmp_path / "store" / ".build-ä b" / "root" / "proc"
    source.mkdir()
    point.mkdir(parents=True)
    (source / "file").touch()
    subprocess.run(["mount", "--bind", source, point], check=True)
    try:
        yield point
    finally:
        if mounted_below(tmp_path):
            subprocess.run(["umount", "--lazy", point], check=True)


def test_a_cancelled_tool_leaves_nothing_mounted_and_no_process(tmp_path: Path) -> None:
    point, flag = tmp_path / "point", tmp_path / "mounted"
    point.mkdir()
    with pytest.raises(ImageCancelled):
        run_tool(["sh", "-c", MOUNTS_AND_STAYS.format(point, flag)], job=job(flag.exists), tmp=tmp_path, mounts=True)
    assert mounted_below(tmp_path) == []
    wait_until_ended(tmp_path)


# Runs the shell's script of the second argument; the first one is a folder for temporary files.
PROGRAM = (
    "import sys, time; from pathlib import Path; from vmbackend.images.process import run_tool; "
    "from vmbackend.images.types import Job, never_cancelled; "
    "sys.exit(run_tool(['sh', '-c', sys.argv[2]], job=Job(lambda *_: None, time.monotonic() + 60, never_cancelled), "
    "tmp=Path(sys.argv[1]), mounts=True).returncode)"
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_dies_leaves_nothing_mounted_and_no_process(tmp_path: Path, number: signal.Signals) -> None:
    point, flag = tmp_path / "point", tmp_path / "mounted"
    point.mkdir()
    command = [sys.executable, "-c", PROGRAM, tmp_path, MOUNTS_AND_STAYS.format(point, flag)]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        while not flag.exists():
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.send_signal(number)
        process.wait()
    assert mounted_below(tmp_path) == []
    wait_until_ended(tmp_path)


def test_where_nothing_may_be_mounted_a_tool_runs_without_it(tmp_path: Path) -> None:
    without = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"]
    script = f"mount -t tmpfs none {tmp_path} 2>/dev/null && exit 3; exit 4"
    command = [*without, sys.executable, "-c", PROGRAM, tmp_path, script]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 4


def test_what_an_earlier_build_left_mounted_is_unmounted_and_not_emptied(mounted: Path, tmp_path: Path) -> None:
    assert mounted_below(tmp_path) == [mounted], "a name with a space and a letter beyond ASCII is read as it is"
    with build._scratch(tmp_path / "store", job()) as scratch:
        assert [path.name for path in (tmp_path / "store").glob(".build-*")] == [scratch.name]
    assert mounted_below(tmp_path) == []
    assert (tmp_path / "of the host" / "file").exists()


def test_what_cannot_be_unmounted_stays(mounted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "unmount", lambda _: None)
    with build._scratch(tmp_path / "store", job()):
        assert (mounted / "file").exists()


def test_what_a_failed_build_has_mounted_is_unmounted_and_not_emptied(tmp_path: Path) -> None:
    source = tmp_path / "of the host"
    source.mkdir()
    (source / "file").touch()

    def fail_with_a_mount() -> None:
        with build._scratch(tmp_path / "store", job()) as scratch:
            (scratch / "proc").mkdir()
            subprocess.run(["mount", "--bind", source, scratch / "proc"], check=True)
            raise ImageBroken("The image could not be built.")

    with pytest.raises(ImageBroken):
        fail_with_a_mount()
    assert (mounted_below(tmp_path), list((tmp_path / "store").glob(".build-*"))) == ([], [])
    assert (source / "file").exists()
