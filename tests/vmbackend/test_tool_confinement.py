"""What the tools that read hostile input can reach: of a confined shell, and of each real tool while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.vm.client import until
from tests.vmbackend.stores import pull, rootfs, store
from vmbackend.images.build import add_directory_image
from vmbackend.images.store import ImageConfig, ImageStore
from vmbackend.libvirt import disks
from vmbackend.tool_confinement import TOOL_UID, ToolConfinement, confined_command, give_to_tools

__all__ = ["rootfs", "store"]
pytestmark = pytest.mark.host

CAPABILITIES = {"chown": 0, "dac_override": 1, "dac_read_search": 2, "fowner": 3, "fsetid": 4, "setfcap": 31}
UNPACKING = sum(1 << CAPABILITIES[name] for name in ("chown", "dac_override", "fowner", "fsetid", "setfcap"))


def run(script: str, confinement: ToolConfinement | None = None) -> subprocess.CompletedProcess[str]:
    with confined_command(["sh", "-c", script], confinement or ToolConfinement()) as (command, descriptors):
        return subprocess.run(command, pass_fds=descriptors, capture_output=True, text=True, timeout=30, check=False)


def test_a_tool_sees_its_own_folders_and_no_more_of_the_host(tmp_path: Path) -> None:
    mine, others = tmp_path / "mine", tmp_path / "others"
    for folder in (mine, others):
        folder.mkdir(mode=0o700)
    (mine / "given").write_text("x")
    give_to_tools(mine)
    done = run(
        "ls -A /mine; cat /note; touch /mine/made; echo /*; ls /proc | grep -c '^[0-9]'; ip -o link | cut -d: -f2; "
        "ls /etc /root /home /var /run /sys; touch /usr/x /x; cat /proc/1/root/etc/shadow",
        ToolConfinement(writable=((mine, "/mine"),), files={"/note": b"a note\n"}),
    )
    listed, note, top, processes, *links = done.stdout.splitlines()
    assert (listed, note) == ("given", "a note")
    assert top == "/bin /dev /lib /lib64 /mine /note /proc /sbin /tmp /usr"
    assert int(processes) <= 5  # its first one, the shell, those of the pipe
    assert [link.strip() for link in links] == ["lo"]
    assert (mine / "made").stat().st_uid == TOOL_UID
    for path in ("/etc", "/root", "/home", "/var", "/run", "/sys", "/usr/x", "/x", "/proc/1/root/etc/shadow"):
        assert path in done.stderr


def test_a_tool_has_no_capability_and_cannot_get_one(tmp_path: Path) -> None:
    done = run("grep -E '^(Cap|NoNewPrivs)' /proc/self/status; id -u; mknod /tmp/null c 1 3; mount -t tmpfs x /tmp")
    words = done.stdout.split()
    assert {words[at + 1] for at, word in enumerate(words) if word.startswith("Cap")} == {"0" * 16}
    assert words[-3:] == ["NoNewPrivs:", "1", "0"]
    assert done.stderr.count("Operation not permitted") + done.stderr.count("permission denied") == 2


def test_memory_and_file_sizes_are_limited(tmp_path: Path) -> None:
    give_to_tools(tmp_path)
    confinement = ToolConfinement(writable=((tmp_path, "/out"),), memory_bytes=64 << 20)
    done = run("/usr/bin/python3 -c 'bytearray(256 << 20)'; ulimit -c", confinement)
    assert "MemoryError" in done.stderr
    assert done.stdout == "0\n"
    argv = ["sh", "-c", "head -c 2000000 /dev/zero >/out/file"]
    with confined_command(argv, confinement, max_file_bytes=1 << 20) as (command, descriptors):
        subprocess.run(command, pass_fds=descriptors, capture_output=True, check=False, timeout=30)
    assert (tmp_path / "file").stat().st_size == 1 << 20


PARENT = """
import subprocess, sys
from vmbackend.tool_confinement import ToolConfinement, confined_command
with confined_command(["sleep", sys.argv[1]], ToolConfinement()) as (command, descriptors):
    subprocess.Popen(command, pass_fds=descriptors)
    print("up", flush=True)
    sys.stdin.read()
"""


def test_a_tool_ends_with_its_parent() -> None:
    mark = f"86400.{os.getpid()}"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, mark], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        until(lambda: "sleep" in commands_with(mark), 10, "the tool runs")
        parent.kill()
    until(lambda: commands_with(mark) == [], 10, "the tool has ended")


def commands_with(word: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
            found += [arguments[0]] if word in arguments else []
    return found


class Watcher(threading.Thread):
    """Notes of each running tool of this process the host's user id and the capabilities that it has."""

    def __init__(self, *tools: str) -> None:
        super().__init__(daemon=True)
        self._tools, self._stopping = tools, threading.Event()
        self.seen: dict[str, set[tuple[int, int]]] = {tool: set() for tool in tools}

    def run(self) -> None:
        while not self._stopping.is_set():
            for pid in map(int, (path.name for path in Path("/proc").glob("[0-9]*"))):
                with suppress(OSError, KeyError):
                    name = status_of(pid)["Name"]
                    if name in self._tools and is_ours(pid):
                        # While a program is executed it has its new name a moment before its new capabilities.
                        time.sleep(0.002)
                        status = status_of(pid)
                        self.seen[name].add((int(status["Uid"].split()[1]), int(status["CapPrm"], 16)))

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


def is_ours(pid: int) -> bool:
    """Whether a process descends from this one: other tests run tools, too."""
    while pid > 1 and pid != os.getpid():
        pid = int(status_of(pid)["PPid"])
    return pid == os.getpid()


@contextmanager
def watching(*tools: str) -> Iterator[Watcher]:
    watcher = Watcher(*tools)
    watcher.start()
    try:
        yield watcher
    finally:
        watcher.stop()


def test_image_tools_are_confined_while_they_run(store: ImageStore, rootfs: Path, tmp_path: Path) -> None:
    for number in range(3000):
        (rootfs / f"noise{number}").write_bytes(os.urandom(16384))
    add_directory_image(tmp_path / "oci", "localhost/big", rootfs, ImageConfig())
    with watching("skopeo", "umoci", "mksquashfs") as watcher:
        pull(store, "localhost/big")
    assert watcher.seen == {
        "skopeo": {(TOOL_UID, 0)},
        "umoci": {(TOOL_UID, UNPACKING)},
        "mksquashfs": {(TOOL_UID, 1 << CAPABILITIES["dac_read_search"])},
    }


def test_disk_tools_are_confined_while_they_run(tmp_path: Path) -> None:
    disk = tmp_path / "data.raw"
    disks.create_disk(disk, 32 << 10)
    owner = disk.stat().st_uid
    with watching("e2fsck", "resize2fs") as watcher:
        for size in range(64 << 10, 1 << 20, 32 << 10):
            disks.grow_disk(disk, size)
            # They take milliseconds, in which the watcher may have been elsewhere.
            if all(watcher.seen.values()):
                break
    assert watcher.seen == {"e2fsck": {(TOOL_UID, 0)}, "resize2fs": {(TOOL_UID, 0)}}
    assert disk.stat().st_uid == owner


def test_a_link_in_place_of_a_disk_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(disks.MIB))
    (tmp_path / "data.raw").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links"):
        disks.grow_disk(tmp_path / "data.raw", 1)
    assert secret.stat().st_uid == os.geteuid()
