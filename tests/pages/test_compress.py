"""Copies are optional: what takes too long or too much ends, and leaves nothing."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pages.releases import compress
from pages.releases.compress import CompressLimits, is_compressed, make_copies
from tests.pages.stores import TEXT


def folder_of(tmp_path: Path, files: dict[str, bytes]) -> list[tuple[str, int]]:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return [(name, len(data)) for name, data in files.items()]


def test_copies_are_made_by_several_processes(tmp_path: Path) -> None:
    jobs = folder_of(tmp_path, {f"{number}.js": TEXT + b"%d" % number for number in range(20)})
    made = make_copies(tmp_path, jobs, CompressLimits(processes=3))
    assert set(made) == {name for name, _ in jobs}
    for name, copies in made.items():
        assert copies == {
            encoding: (tmp_path / f"{name}.{encoding}").stat().st_size for encoding in ("br", "zst", "gz")
        }


def test_a_deadline_leaves_whole_copies_or_none(tmp_path: Path) -> None:
    jobs = folder_of(tmp_path, {f"{number}.js": os.urandom(1 << 19).hex().encode() for number in range(20)})
    made = make_copies(tmp_path, jobs, CompressLimits(seconds=0.3))
    assert len(made) < 20
    copies = {path.name for path in tmp_path.iterdir()} - {name for name, _ in jobs}
    assert copies == {f"{name}.{encoding}" for name, encodings in made.items() for encoding in encodings}


def test_without_memory_a_file_has_no_copies(tmp_path: Path) -> None:
    jobs = folder_of(tmp_path, {"a.js": TEXT * 20000})
    assert make_copies(tmp_path, jobs, CompressLimits(processes=1, memory_bytes=24 << 20)) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["a.js"]


def test_a_name_without_room_for_the_ending_of_a_copy_keeps_no_other_file_from_its_own(tmp_path: Path) -> None:
    jobs = folder_of(tmp_path, {f"{'n' * (255 - 3 - short)}.js": TEXT for short in range(6)})
    made = make_copies(tmp_path, [job for job in jobs if is_compressed(*job)], CompressLimits(processes=1))
    assert {len(name) for name in made} == {251, 250}


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    """The parent is killed while they work."""
    folder_of(tmp_path, {"a.js": os.urandom(8 << 20).hex().encode()})
    code = (
        "import sys\nfrom pathlib import Path\nfrom pages.releases import compress\n"
        "worker = compress._Worker(Path(sys.argv[1]), ['a.js'], compress.CompressLimits())\n"
        "print(worker._process.pid, flush=True)\nworker._process.wait()\n"
    )
    environment = os.environ | {"PYTHONPATH": str(compress._ROOT)}
    with subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        watched = os.pidfd_open(child)
        parent.send_signal(signal.SIGKILL)
    with os.fdopen(watched) as descriptor:
        assert select.select([descriptor], [], [], 60)[0]


@pytest.mark.parametrize(
    ("path", "size", "expected"),
    [
        ("a.html", 1025, True), ("a.html", 1024, False), ("a.JS", 5000, True), ("a.b/c", 5000, False),
        ("a.png", 5000, False),
        ("a.wasm", 5000, True), ("a.js.gz", 5000, False), ("js", 5000, False), (".well-known/x.json", 5000, True),
    ],
)  # fmt: skip
def test_which_files_have_copies(path: str, size: int, expected: bool) -> None:
    assert is_compressed(path, size) == expected
