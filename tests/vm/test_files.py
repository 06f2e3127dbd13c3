"""Large files travel through every process in pieces: contents arrive whole and memory does not grow with them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.vm.client import Api, until
from tests.vm.instances import TestInstance

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("witness")]
SIZE = 64 * 2**20
GROWTH_LIMIT_KB = 64 * 1024
RAW = "application/octet-stream"
LEAVING = 20
# A multiple of three, so that the pieces' base64 joins up.
PIECE = 3 * 2**18


@pytest.fixture(scope="module")
def machine(api: Api) -> Iterator[str]:
    made = api.create(disk_size_mb=512)["id"]
    # Connections and imports that the first transfer makes are not growth with the file.
    _send_raw(api, made, [b"warm"], "/warm")
    _send_json(api, made, [b"warm"], "/warm")
    yield made
    api.delete(made)


def test_a_file_of_64_mib_travels_as_json(instance: TestInstance, api: Api, machine: str) -> None:
    seed, digest = os.urandom(PIECE), hashlib.sha256()
    with _bounded_memory(instance):
        _send_json(api, machine, _content(seed, digest), "/root/json.bin")
        assert api.output(machine, ["sha256sum", "/root/json.bin"]).split()[0] == digest.hexdigest()
        assert _read_json(api, machine, "/root/json.bin") == digest.hexdigest()
    api.output(machine, ["rm", "/root/json.bin"])


def test_a_file_of_64_mib_travels_as_raw_bytes(instance: TestInstance, api: Api, machine: str) -> None:
    seed, digest = os.urandom(PIECE), hashlib.sha256()
    with _bounded_memory(instance):
        _send_raw(api, machine, _content(seed, digest), "/root/raw.bin")
        assert api.output(machine, ["sha256sum", "/root/raw.bin"]).split()[0] == digest.hexdigest()
        assert _read_raw(api, machine, "/root/raw.bin") == digest.hexdigest()
    api.output(machine, ["rm", "/root/raw.bin"])


def test_json_above_the_limit_is_refused_both_ways_and_raw_bytes_are_not(api: Api, machine: str) -> None:
    path, params = f"/workspace/{machine}/overlay/files", {"path": "/root/large"}
    with pytest.raises(AssertionError, match="413"):
        _send_json(api, machine, _content(os.urandom(PIECE), hashlib.sha256(), size=SIZE + 1), "/root/large")
    assert api.execute(machine, ["ls", "/root/large"])["exit_code"] != 0
    _send_raw(api, machine, _content(os.urandom(PIECE), hashlib.sha256(), size=SIZE + 1), "/root/large")
    refused = api.http.get(path, params=params)
    assert (refused.status_code, refused.json()["error"]) == (413, "payload_too_large")
    part = api.http.get(path, params=params, headers={"Accept": RAW, "Range": f"bytes={SIZE}-"})
    assert (part.status_code, part.headers["content-range"]) == (206, f"bytes {SIZE}-{SIZE}/{SIZE + 1}")
    api.output(machine, ["rm", "/root/large"])


def test_readers_who_leave_in_the_middle_leave_nothing_in_the_log(
    instance: TestInstance, api: Api, machine: str
) -> None:
    api.output(machine, "head -c 33554432 /dev/zero > /root/read.bin")
    log = instance.instance.log_dir / "streams.log"
    before = log.stat().st_size
    query = {"params": {"path": "/root/read.bin"}, "headers": {"Accept": RAW}}
    for number in range(LEAVING):
        with api.http.stream("GET", f"/workspace/{machine}/overlay/files", **query) as response:
            pieces = response.iter_raw()
            for _ in range(number % 4 + 1):
                next(pieces)
    # Each that left gave its place back, and what it left in the log is there.
    assert _read_raw_size(api, machine, "/root/read.bin") == 32 << 20
    written = log.read_bytes()[before:].decode(errors="replace")
    assert not re.search("Traceback|ERROR|exception", written), written[-3000:]


def test_a_command_that_meets_a_stop_is_answered_409(api: Api, machine: str) -> None:
    command = {"cmd": "touch /dev/shm/running; sleep 60", "timeout_seconds": 90}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(api.http.post, f"/workspace/{machine}/exec", json=command)
        until(lambda: api.execute(machine, ["ls", "/dev/shm/running"])["exit_code"] == 0, 30, "the command runs")
        api.power(machine, "stop")
        refused = answer.result(120)
    assert (refused.status_code, refused.json()["code"]) == (409, "vm_not_running"), refused.text


def _content(seed: bytes, digest: hashlib._Hash, size: int = SIZE) -> Iterator[bytes]:
    """Pieces that differ from each other; the digest is that of what was sent."""
    for number in range(0, size, len(seed)):
        piece = (number.to_bytes(8, "big") + seed[8:])[: size - number]
        digest.update(piece)
        yield piece


def _send_json(api: Api, workspace_id: str, pieces: Iterator[bytes] | list[bytes], path: str) -> None:
    def body() -> Iterator[bytes]:
        yield f'{{"path": {json.dumps(path)}, "content": "'.encode()
        for piece in pieces:
            yield base64.b64encode(piece)
        yield b'"}'

    headers = {"Content-Type": "application/json"}
    api.call("POST", f"/workspace/{workspace_id}/overlay/files", content=body(), headers=headers)


def _send_raw(api: Api, workspace_id: str, pieces: Iterator[bytes] | list[bytes], path: str) -> None:
    address, headers = f"/workspace/{workspace_id}/overlay/files", {"Content-Type": RAW}
    api.call("POST", address, params={"path": path}, content=iter(pieces), headers=headers)


def _read_json(api: Api, workspace_id: str, path: str) -> str:
    """The SHA-256 of the response's content."""
    read = api.call("GET", f"/workspace/{workspace_id}/overlay/files", params={"path": path})
    content = base64.b64decode(read["content"])
    assert (read["size"], read["encoding"], len(content)) == (SIZE, "base64", SIZE)
    return hashlib.sha256(content).hexdigest()


def _read_raw(api: Api, workspace_id: str, path: str) -> str:
    digest = hashlib.sha256()
    request = api.http.stream(
        "GET", f"/workspace/{workspace_id}/overlay/files", params={"path": path}, headers={"Accept": RAW}
    )
    with request as response:
        assert response.status_code == 200
        for piece in response.iter_bytes():
            digest.update(piece)
    return digest.hexdigest()


def _read_raw_size(api: Api, workspace_id: str, path: str) -> int:
    read = api.http.get(f"/workspace/{workspace_id}/overlay/files", params={"path": path}, headers={"Accept": RAW})
    assert read.status_code == 200, read.text
    return len(read.content)


@contextmanager
def _bounded_memory(instance: TestInstance) -> Iterator[None]:
    """No process of the instance may grow by 64 MiB inside the block, not even for a moment."""
    processes = instance.process_tree()
    before = {}
    for pid in processes:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak starts again at what is used now
        before[pid] = _peak_kb(pid)
    yield
    assert instance.process_tree().keys() >= processes.keys(), "a process was started again"
    growth = {f"{name} {pid}": _peak_kb(pid) - before[pid] for pid, name in processes.items()}
    assert set(processes.values()) >= {"api", "streams", "vmhost", "worker", "edge", "redis"}
    assert {name: kb for name, kb in growth.items() if kb >= GROWTH_LIMIT_KB} == {}, growth


def _peak_kb(pid: int) -> int:
    with suppress(FileNotFoundError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    raise AssertionError(f"process {pid} ended")
