"""Files of a real guest: names and kinds of files, the kernel's own, a full disk, uploads that broke."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import quote_from_bytes

import httpx
import pytest

from tests.vm.client import Api, until
from tests.vm.instances import TestInstance

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("witness")]
RAW = "application/octet-stream"
NAMES = [b"-rf", b"a\nb", b"\xff\xfe", b"$(id)", b"..x", "ü".encode(), b"*", b" ", b"\x01\x1b[0m", b"x" * 255]


class Files:
    """One machine's file routes."""

    def __init__(self, api: Api, workspace_id: str) -> None:
        self.api, self.id = api, workspace_id
        self.path = f"/workspace/{workspace_id}/overlay"

    def list(self, path: str, expect: int = 200, **query: Any) -> dict[str, Any]:
        return self.api.call("GET", self.path, expect, params={"path": path, **query})

    def read(self, encoded: str, expect: int = 200) -> httpx.Response:
        answer = self.api.http.get(f"{self.path}/files?path={encoded}", headers={"Accept": RAW})
        assert answer.status_code == expect, answer.text[:500]
        return answer

    def write(self, encoded: str, content: Any, expect: int = 200) -> dict[str, Any]:
        return self.api.call(
            "POST", f"{self.path}/files?path={encoded}", expect, content=content, headers={"Content-Type": RAW}
        )

    def run(self, command: str) -> str:
        return self.api.output(self.id, command)


@pytest.fixture(scope="module")
def files(api: Api) -> Iterator[Files]:
    made = api.create(disk_size_mb=64)["id"]
    yield Files(api, made)
    api.delete(made)


def test_names_of_any_bytes_are_written_listed_and_read(files: Files) -> None:
    for name in NAMES:
        files.write(f"/names/{quote_from_bytes(name)}", name)
    listed: dict[str, Any] = {}
    cursor = ""
    while cursor is not None:
        page = files.list("/names", limit=3, cursor=cursor)
        listed |= {entry.get("encoded_path") or entry["path"]: entry for entry in page["entries"]}
        cursor = page["next_cursor"]
    assert len(listed) == len(NAMES)
    for name in NAMES:
        encoded = f"/names/{quote_from_bytes(name)}"
        assert listed.get(encoded) or listed[f"/names/{name.decode()}"]
        assert files.read(encoded).content == name


def test_a_large_directory_is_paged_by_name(files: Files) -> None:
    files.run("mkdir /many; cd /many; i=0; while [ $i -lt 3000 ]; do : > $i; i=$((i+1)); done; ln -s 7 2999x")
    page = files.list("/many", limit=2000)
    assert (page["count"], page["truncated"]) == (2000, True)
    rest = files.list("/many", limit=2000, cursor=page["next_cursor"])
    assert (rest["count"], rest["truncated"], rest["next_cursor"]) == (1001, False, None)
    entries = {entry["name"]: entry for entry in page["entries"] + rest["entries"]}
    assert list(entries) == sorted([*map(str, range(3000)), "2999x"])
    assert entries["2999x"]["target"] == "7"


def test_the_kernels_files_are_read_whole_or_refused(files: Files) -> None:
    assert files.read("/proc/version").content.startswith(b"Linux")
    assert int(files.read("/sys/class/net/lo/mtu").content) > 0
    assert "version" in {entry["name"] for entry in files.list("/proc")["entries"]}
    assert files.list("/sys")["count"] > 3
    files.api.call("GET", f"{files.path}/files", 400, params={"path": "/proc/kmsg"})  # which blocks
    assert files.read("/proc/version").content.startswith(b"Linux")


def test_what_is_no_file_is_refused(files: Files) -> None:
    files.run("mkdir /kinds; cd /kinds; mkfifo fifo; ln -s loop loop; mkdir -m 0 closed; : > closed/file")
    for path in ("/kinds", "/kinds/fifo", "/dev/null", "/dev/vda"):
        assert files.read(path, 400).json()["code"] == "path_invalid"
        files.write(path, b"x", 400)
    assert files.read("/kinds/loop", 404).json()["code"] == "path_not_found"
    assert files.list("/kinds/closed")["count"] == 1
    kinds = {entry["name"]: entry["type"] for entry in files.list("/kinds")["entries"]}
    assert kinds == {"fifo": "other", "loop": "symlink", "closed": "directory"}


def test_a_directory_that_takes_no_files_is_refused_and_not_reported_full(files: Files) -> None:
    for path in ("/run/kit/new", "/proc/new", "/sys/new", "/proc/sys/kernel/hostname"):
        answer = files.write(path, b"x", 400)
        assert answer["code"] == "path_invalid"
    assert "read-only" in files.write("/run/kit/new", b"x", 400)["message"]


def test_a_full_disk_is_reported_and_keeps_the_old_file(files: Files) -> None:
    files.write("/root/file", b"old")
    free = files.api.call("GET", f"{files.path}/usage")["available_bytes"]
    blocks = (bytes(1 << 20) for _ in range((free >> 20) + 8))
    assert files.write("/root/file", blocks, 409)["code"] == "guest_disk_full"
    assert files.read("/root/file").content == b"old"
    assert partial_files(files) == ""
    assert abs(files.api.call("GET", f"{files.path}/usage")["available_bytes"] - free) < 1 << 20


def test_usage_grows_with_what_is_written(files: Files) -> None:
    before = files.api.call("GET", f"{files.path}/usage")
    files.write("/root/eight", bytes(8 << 20))
    files.api.call("POST", f"{files.path}/sync")
    after = files.api.call("GET", f"{files.path}/usage")
    assert after["used_bytes"] - before["used_bytes"] >= 8 << 20
    assert 0 < after["percent"] < 100
    assert after["total_bytes"] == before["total_bytes"] <= 64 << 20
    files.run("rm /root/eight")


def partial_files(files: Files) -> str:
    cmd = "find / -xdev -name '.partial-*'"
    answer = files.api.patiently("POST", f"/workspace/{files.id}/exec", json={"cmd": cmd})
    found: str = answer["stdout"].strip()
    return found


class Endless:
    """An upload that continues until it fails."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> None:
        self._thread.start()
        until(lambda: partial_files(self._files), 30, "the upload has begun")

    def __exit__(self, *failure: object) -> None:
        self._end.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _send(self) -> None:
        with suppress(httpx.HTTPError, AssertionError):
            self._files.write("/root/file", self._blocks())

    def _blocks(self) -> Iterator[bytes]:
        while not self._end.wait(0.1):
            yield bytes(100_000)
        raise httpx.WriteError("The sender goes away.")


def test_an_upload_whose_client_disconnects_leaves_nothing(files: Files) -> None:
    files.write("/root/file", b"old")
    with Endless(files):
        pass
    until(lambda: partial_files(files) == "", 30, "the partial file is gone")
    assert files.read("/root/file").content == b"old"


def test_an_upload_whose_server_is_killed_leaves_nothing(instance: TestInstance, files: Files) -> None:
    files.write("/root/file", b"old")
    with Endless(files):
        instance.kill("streams")
        until(lambda: partial_files(files) == "", 30, "the partial file is gone")
    instance.wait_until_running()
    assert files.read("/root/file").content == b"old"
