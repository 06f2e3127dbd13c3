"""Pulls that reach a limit, run concurrently or are killed; eviction."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.run_extent import campaign_after
from tests.vmbackend.deep_trees import deep_root
from tests.vmbackend.stores import (
    CONFIG,
    MIB,
    add_file,
    layered_image,
    partial_work,
    pull,
    rootfs,
    store,
)
from vmbackend import errors
from vmbackend.images.build import add_directory_image
from vmbackend.images.store import ImageSettings, ImageStore
from vmbackend.orphaned_tools import kill_orphaned_tools

__all__ = ["deep_root", "rootfs", "store"]
pytestmark = pytest.mark.host


def test_unpacking_an_image_above_the_limit_is_aborted(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    for number in range(6):
        (rootfs / f"zeros{number}").write_bytes(bytes(10 * MIB))  # compresses to almost nothing
    add_directory_image(tmp_path / "oci", "localhost/bomb", rootfs, CONFIG)
    small = ImageStore(tmp_path / "root", replace(store.settings, max_unpacked_bytes=16 * MIB))
    with pytest.raises(errors.ImageTooLarge):
        pull(small, "localhost/bomb")
    assert partial_work(tmp_path / "root") == []
    assert pull(store, "localhost/bomb").size_bytes < MIB


def test_an_image_of_deep_folders_is_too_large_and_leaves_nothing(
    store: ImageStore, deep_root: Path, tmp_path: Path
) -> None:
    """The tool sees `/rootfs/a/a/...`, which is short enough; the host's path is not, and hid what is in it."""
    layered_image(
        tmp_path / "oci", [lambda tar: add_file(tar, "a/" * 2035 + "big", bytes(MIB))], "localhost/deep:latest"
    )
    inside = ImageStore(deep_root, store.settings)
    with pytest.raises(errors.ImageTooLarge):
        pull(inside, "localhost/deep")
    assert partial_work(deep_root) == []
    assert inside.sweep() == []


def test_an_image_whose_manifest_exceeds_the_limit_is_not_downloaded(
    store: ImageStore, rootfs: Path, tmp_path: Path
) -> None:
    (rootfs / "noise").write_bytes(os.urandom(2 * MIB))
    add_directory_image(tmp_path / "oci", "localhost/big", rootfs, CONFIG)
    seen: list[str] = []
    small = ImageStore(tmp_path / "root", replace(store.settings, max_unpacked_bytes=MIB))
    with pytest.raises(errors.ImageTooLarge):
        pull(small, "localhost/big", progress=lambda _, text: seen.append(text))
    assert "Downloading the image." not in seen


def test_a_full_host_disk_raises_capacity_exceeded(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    full = ImageStore(tmp_path / "root", replace(store.settings, min_free_bytes=1 << 60))
    with pytest.raises(errors.CapacityExceeded):
        pull(full, "localhost/tiny")
    assert partial_work(tmp_path / "root") == []


def test_damaged_layers_raise_image_broken(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    layer = max((tmp_path / "oci/blobs/sha256").iterdir(), key=lambda path: path.read_bytes()[:2] == b"\x1f\x8b")
    layer.write_bytes(layer.read_bytes()[:-20] + bytes(20))
    with pytest.raises(errors.ImageBroken):
        pull(store, "localhost/tiny")
    assert partial_work(tmp_path / "root") == []


def _pull_in_process(root: Path, settings: ImageSettings, log: Path) -> None:
    def progress(_: int, text: str) -> None:
        with log.open("a") as handle:
            handle.write(text + "\n")

    ImageStore(root, settings).ensure("localhost/big", progress=progress, deadline=time.monotonic() + 60)


@pytest.fixture
def big(rootfs: Path, tmp_path: Path) -> str:
    for number in range(1500):
        (rootfs / f"noise{number}").write_bytes(os.urandom(16384))
    return add_directory_image(tmp_path / "oci", "localhost/big", rootfs, CONFIG)


def test_two_processes_pull_once(store: ImageStore, big: str, tmp_path: Path) -> None:
    logs = [tmp_path / "log0", tmp_path / "log1"]
    context = multiprocessing.get_context("spawn")
    arguments = [(tmp_path / "root", store.settings, log) for log in logs]
    processes = [context.Process(target=_pull_in_process, args=args) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert sum("Unpacking the image." in log.read_text() for log in logs) == 1


def test_threads_pull_once(store: ImageStore, big: str) -> None:
    seen: list[str] = []
    threads = [
        threading.Thread(
            target=pull,
            args=(store, "localhost/big"),
            kwargs={"progress": lambda _, text: seen.append(text)},
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen.count("Writing the base disk.") == 1
    assert seen.count("The image is ready.") == 4


PULL_SCRIPT = """
import sys, time
from pathlib import Path
from vmbackend.images.store import ImageSettings, ImageStore
store = ImageStore(Path(sys.argv[1]), ImageSettings(local_store=Path(sys.argv[2])))
def progress(percent, text): print(text, flush=True)
store.ensure("localhost/big", progress=progress, deadline=time.monotonic() + 60)
"""


def wait_for_tools(root: Path) -> None:
    """Wait until the tools of a killed pull have ended: the kernel kills them shortly after it, but for one that was
    just being confined, which the next process kills.
    """
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        kill_orphaned_tools()
        if not any(refers_to(process, str(root).encode()) for process in Path("/proc").glob("[0-9]*")):
            return
        time.sleep(0.02)
    raise AssertionError("a tool of the killed pull still runs")


def refers_to(process: Path, root: bytes) -> bool:
    """Whether a process has the folder in its arguments, its environment or as its working directory."""
    try:
        text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        return root in text or root in bytes((process / "cwd").readlink())
    except OSError:
        return False


PHASES = ["Unpacking the image.", "Downloading the image.", "Writing the base disk."]


@pytest.mark.parametrize("phase", campaign_after(1, PHASES))
@pytest.mark.parametrize("cleaned_by", ["sweep", "ensure"])
def test_partial_work_of_a_killed_pull_is_removed(
    store: ImageStore, big: str, tmp_path: Path, phase: str, cleaned_by: str
) -> None:
    argv = [sys.executable, "-c", PULL_SCRIPT, str(tmp_path / "root"), str(tmp_path / "oci")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == phase:
                break
        process.send_signal(signal.SIGKILL)
    wait_for_tools(tmp_path / "root")
    assert len(partial_work(tmp_path / "root")) == 1
    assert store.get(big) is None
    if cleaned_by == "sweep":
        assert len(store.sweep()) == 1
        assert partial_work(tmp_path / "root") == []
    else:
        assert pull(store, "localhost/big").digest == big
        assert partial_work(tmp_path / "root") == []


def test_eviction_removes_the_least_recently_used_and_never_images_in_use(
    store: ImageStore, rootfs: Path, tmp_path: Path
) -> None:
    digests = []
    for number in range(4):
        (rootfs / "noise").write_bytes(os.urandom(MIB))
        add_directory_image(tmp_path / "oci", f"localhost/n{number}", rootfs, CONFIG)
        digests.append(pull(store, f"localhost/n{number}").digest)
        time.sleep(0.01)
    store.get(digests[0])
    size = store.list()[0].size_bytes
    small = ImageStore(tmp_path / "root", replace(store.settings, cache_bytes=2 * size + 8192))
    assert small.evict(in_use=[digests[1]]) == [digests[2], digests[3]]
    assert {image.digest for image in small.list()} == set(digests[:2])
    assert small.evict(in_use=[]) == []
    assert pull(small, "localhost/n2").digest == digests[2]


def test_a_recently_used_image_is_not_evicted(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    add_directory_image(tmp_path / "oci", "localhost/tiny", rootfs, CONFIG)
    image = pull(store, "localhost/tiny")
    careful = ImageStore(tmp_path / "root", replace(store.settings, cache_bytes=0, evict_grace=60))
    assert careful.evict(in_use=[]) == []
    assert careful.get(image.digest) == image
