"""What counts as a use of a workspace: calls that touch its guest, for as long as they go on (idle policy)."""

from __future__ import annotations

import asyncio
import json
import time
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connections
from django.test import AsyncClient

from common.redis import redis_client
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.workspace_states import make, until
from workspaces import last_used
from workspaces.files.upload import CHUNK
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
FILES = "/workspace/the-box/overlay/files"
RAW = "application/octet-stream"


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace that has not been used yet, with a file of 1 MiB in it."""
    made = make(api, vmhost, Status.RUNNING, slug="the-box")
    api.post("/workspace/the-box/exec", {"cmd": "head -c 1048576 /dev/zero > zeros"})
    forget(made)
    return made


def forget(made: str) -> None:
    redis_client().delete(last_used._key(made))
    assert last_used.last_used(made) == 0


def used_now(made: str) -> bool:
    return abs(last_used.last_used(made) - time.time()) < 5


@pytest.mark.parametrize("path", ["overlay", "overlay/usage", "overlay/files?path=/zeros"])
def test_a_call_to_the_guest_is_a_use(api: Caller, made: str, path: str) -> None:
    assert api.get(f"/workspace/the-box/{path}").status_code == 200
    assert used_now(made)


@pytest.mark.parametrize("path", ["", "/details", "/lifecycle", "/resources", "/ssh", "/logs"])
def test_a_look_at_the_record_is_none(api: Caller, made: str, path: str) -> None:
    api.get(f"/workspace/the-box{path}")
    assert last_used.last_used(made) == 0


def test_a_command_is_a_use_until_its_end(api: Caller, made: str) -> None:
    def run() -> Any:
        try:
            return api.post("/workspace/the-box/exec", {"cmd": "sleep 1", "timeout_seconds": 300})
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        until(lambda: last_used.last_used(made) > time.time() + 250)
        assert running.result().status_code == 200
    assert used_now(made)


def test_a_command_that_cannot_be_started_ends_its_use(api: Caller, made: str) -> None:
    api.post("/workspace/the-box/exec", {"cmd": ["/no/such/program"], "timeout_seconds": 300})
    assert used_now(made)


def test_a_download_is_a_use_while_its_bytes_flow(api: Caller, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_used, "TRANSFER_INTERVAL_SECONDS", 0.0)

    async def download() -> int:
        answer: Any = await AsyncClient().get(f"{FILES}?path=/zeros", headers={**api.headers, "Accept": RAW})
        await sync_to_async(forget)(made)
        return len(b"".join([chunk async for chunk in answer.streaming_content]))

    assert async_to_sync(download)() == 1 << 20
    assert used_now(made)


@pytest.mark.parametrize(("kind", "times"), [(RAW, 1), ("application/json", 2)])  # which is spooled in between
def test_an_upload_is_a_use_with_each_chunk(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch, kind: str, times: int
) -> None:
    monkeypatch.setattr(last_used, "TRANSFER_INTERVAL_SECONDS", 0.0)
    noted: list[str] = []
    monkeypatch.setattr(last_used, "record_use", noted.append)
    content = b"x" * (1 << 20)
    body = content if kind == RAW else json.dumps({"path": "/up", "content": b64encode(content).decode()}).encode()
    answer = api.client.generic("POST", f"{FILES}?path=/up", body, content_type=kind, headers=api.headers)
    assert answer.status_code == 200
    assert len(noted) >= 1 + times * len(content) // CHUNK


def test_a_transfer_is_recorded_at_intervals(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(last_used.time, "monotonic", lambda: now)
    use = last_used.TransferUse(made)
    for seconds, expected in ((1, False), (19.9, False), (20, True), (39, False), (40, True)):
        forget(made)
        monkeypatch.setattr(last_used.time, "monotonic", lambda at=now + seconds: at)
        use.record_chunk()
        assert used_now(made) is expected


class Writes:
    """Counts what is written to Redis, and answers as Redis or as one that is away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.away, self._write = 0, False, last_used._write_use
        monkeypatch.setattr(last_used, "_write_use", self.write)

    def write(self, *arguments: Any, **options: Any) -> bool:
        self.count += 1
        return not self.away and self._write(*arguments, **options)


def test_uses_that_overlap_are_written_once_and_end_with_the_last(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forget(made)
    writes = Writes(monkeypatch)
    with last_used.in_use(made, 300):
        for _ in range(5):
            with last_used.in_use(made, 300):
                pass
        assert writes.count == 1
        assert last_used.last_used(made) > time.time() + 250
    assert writes.count == 2
    assert used_now(made)
    assert last_used._current_uses == {}


def test_a_use_that_begins_later_is_recorded_to_its_own_end(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    with last_used.in_use(made, 300):
        writes = Writes(monkeypatch)
        for later, count in ((4, 0), (6, 1), (8, 1), (12, 2)):
            monkeypatch.setattr(last_used.time, "time", lambda at=now + later: at)
            with last_used.in_use(made, 300):
                assert writes.count == count
                assert now + later + 300 - last_used.last_used(made) < last_used.REQUEST_INTERVAL_SECONDS


def test_a_longer_use_is_recorded_beside_a_shorter_one(made: str) -> None:
    with last_used.in_use(made, 30):
        with last_used.in_use(made, 300):
            assert last_used.last_used(made) > time.time() + 250
        assert time.time() + 20 < last_used.last_used(made) < time.time() + 40
    assert used_now(made)


def test_a_use_that_could_not_be_written_is_written_by_the_next(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = Writes(monkeypatch)
    writes.away = True
    with last_used.in_use(made, 300):
        writes.away = False
        with last_used.in_use(made, 300):
            assert last_used.last_used(made) > time.time() + 250


def test_uses_of_many_tasks_end_with_the_last_of_them(made: str) -> None:
    forget(made)

    async def use(number: int) -> None:
        async with last_used.in_use_async(made, 300):
            assert await sync_to_async(last_used.last_used)(made) > time.time() + 250
            if number % 2:
                raise OSError(number)

    async def run() -> list[Any]:
        return await asyncio.gather(*map(use, range(20)), return_exceptions=True)

    assert sum(isinstance(result, OSError) for result in async_to_sync(run)()) == 10
    assert used_now(made)
    assert last_used._current_uses == {}
