"""Steps of a build of an image: they begin with their process or not at all, and say why they failed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from tests.vmbackend.test_image_builds import ROOT, job, wait_until_ended
from vmbackend import mounts
from vmbackend.errors import BackendUnavailable, ImageBroken
from vmbackend.images import build
from vmbackend.images.process import run_tool
from vmbackend.mounts import mounted_below, unmount

pytestmark = pytest.mark.host
# Dies so many seconds after it has started a tool; the arguments are these, and a folder that the tool names.
DYING = """
import os, signal, sys, time
from pathlib import Path
from vmbackend.images import process
from vmbackend.images.types import Job, never_cancelled
start = process._start
def start_and_die(*given):
    start(*given)
    time.sleep(float(sys.argv[1]))
    os.kill(os.getpid(), signal.SIGKILL)
process._start = start_and_die
job = Job(lambda *_: None, time.monotonic() + 60, never_cancelled)
folder, mounts = Path(sys.argv[2]), sys.argv[3] == "True"
process.run_tool(["sh", "-c", "sleep 7346; :", folder], job=job, tmp=folder, mounts=mounts)
"""
# Where a new /proc is refused, or no new process namespace is allowed: mounts are.
PROC_IS_COVERED = (
    'mount -t proc proc /proc && mount --bind {0} /proc/fs && set unshare --user --map-root-user --mount "$@"'
)
NO_PROCESSES = "echo 0 >/proc/sys/user/max_pid_namespaces"
MOUNTING = """
import sys, time
from pathlib import Path
from vmbackend.images.process import run_tool
from vmbackend.images.types import Job, never_cancelled
from vmbackend.mounts import mount_points
folder = Path(sys.argv[1])
job = Job(lambda *_: None, time.monotonic() + 60, never_cancelled)
done = run_tool(["mount", "-t", "tmpfs", "none", folder], job=job, tmp=folder, mounts=True)
print(done.returncode, folder in mount_points())
"""


@pytest.mark.parametrize("mounts", [False, True])
def test_a_process_that_dies_right_after_it_has_started_a_tool_leaves_none(tmp_path: Path, mounts: bool) -> None:
    for seconds in (0, 0, 0.0005, 0.001, 0.002, 0.004):
        command = [sys.executable, "-c", DYING, str(seconds), tmp_path, str(mounts)]
        assert subprocess.run(command, cwd=ROOT, check=False).returncode == -9
    wait_until_ended(tmp_path)


@pytest.mark.parametrize("prepared", [PROC_IS_COVERED, NO_PROCESSES], ids=["no new /proc", "no process namespace"])
def test_what_is_mounted_where_not_every_namespace_is_allowed_is_unmounted_too(tmp_path: Path, prepared: str) -> None:
    script = f'{prepared.format(tmp_path)} && exec "$@"'
    inside = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-c", script, "sh"]
    command = [*inside, sys.executable, "-c", MOUNTING, tmp_path]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "False"]


def test_a_tool_gets_its_arguments_and_no_input(tmp_path: Path) -> None:
    words = ["a b", "$HOME", "", "-n", "'\"", "ä"]
    done = run_tool(["sh", "-c", 'cat; printf "%s|" "$0" "$@"', *words], job=job(), tmp=tmp_path)
    assert (done.returncode, done.stdout.decode()) == (0, "|".join(words) + "|")


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("kill -9 $$", "sh was ended by signal 9."),
        ("exit 3", "sh ended with code 3."),
        ("echo what is wrong >&2; exit 1", "what is wrong"),
        ("seq 1000 >&2; exit 1", "...876\n"),
    ],
)
def test_a_step_that_fails_says_why(tmp_path: Path, script: str, sentence: str) -> None:
    with pytest.raises(ImageBroken) as failed:
        build._run_step(["sh", "-c", script], job(), tmp_path)
    assert failed.value.message.startswith(f"The image could not be built: {sentence}")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 20 MiB."""
    point = tmp_path / "small"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20M", "none", point], check=True)
    (point / "scratch").mkdir()
    yield point / "scratch"
    unmount(mounted_below(tmp_path))


def test_a_step_says_that_the_disk_is_full_though_its_tool_has_removed_what_it_wrote(small: Path) -> None:
    script = f"head -c 30M /dev/zero >{small}/file 2>/dev/null; sleep 0.3; rm {small}/file; exit 1"
    with pytest.raises(ImageBroken, match=f"the disk of {small.parent} is full"):
        build._run_step(["sh", "-c", script], job(), small)


def test_a_host_without_a_program_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sh", "setpriv"):
        (tmp_path / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendUnavailable, match="lacks the program unshare"):
        run_tool(["sh"], job=job(), tmp=tmp_path, mounts=True)
    with pytest.raises(BackendUnavailable, match="lacks the program mount"):
        unmount([tmp_path])


def test_the_command_says_that_a_disk_is_full_from_the_start(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=1", "none", tmp_path], check=True)
    try:
        with pytest.raises(CommandError, match=r"could not be built: .*No space left"):
            call_command("image_build", root=tmp_path)
    finally:
        unmount([tmp_path])


def test_without_a_list_of_mounts_the_scratch_stays_and_the_first_error_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mounts, "_MOUNTINFO", tmp_path / "missing")
    with pytest.raises(ImageBroken, match="the first"), build._scratch(tmp_path / "store", job()):
        raise ImageBroken("the first")
    assert len(list((tmp_path / "store").glob(".build-*"))) == 1


def test_a_build_that_is_not_needed_removes_what_dead_ones_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_present", lambda *_: "sha256:there")
    scratch = tmp_path / ".build-dead"
    scratch.mkdir()
    with build.wait_lock(tmp_path / ".build.lock", lambda: None):
        assert build.build_default_image(tmp_path) == "sha256:there"
        assert scratch.exists(), "one is being made"
    assert build.build_default_image(tmp_path) == "sha256:there"
    assert not scratch.exists()


def test_of_two_first_builds_the_second_uses_what_the_first_has_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([None, "sha256:there"])
    monkeypatch.setattr(build, "_present", lambda *_: next(answers))
    monkeypatch.setattr(build, "_bootstrap", lambda *_: pytest.fail("it is built again"))
    assert build.build_default_image(tmp_path) == "sha256:there"


def test_a_tool_that_ends_before_it_is_answered_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for script in ("exit 5", "echo >&0; exit 5"):
        monkeypatch.setattr("vmbackend.images.process._ONCE_ANSWERED", ("sh", "-c", script))
        for _ in range(10):
            assert run_tool(["true"], job=job(), tmp=tmp_path).returncode == 5


def test_a_tool_that_waits_to_begin_can_be_cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmbackend.images.process._ONCE_ANSWERED", ("sh", "-c", "sleep 7347"))
    begun = time.monotonic()
    with pytest.raises(RuntimeError, match="cancelled"):
        run_tool(["true"], job=_cancelled_after(begun + 0.3), tmp=tmp_path)


def _cancelled_after(moment: float) -> build.Job:
    def is_over() -> bool:
        if time.monotonic() > moment:
            raise RuntimeError("cancelled")
        return False

    return job(is_over)
