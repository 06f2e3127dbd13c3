"""Raw uploads through the handler of the streams process: nothing of them is stored on the way into the guest."""

from __future__ import annotations

import asyncio
import gc
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.core.handlers.asgi import ASGIHandler

from common import streaming_body
from common.streaming_body import CHUNK_BYTES, StreamingHandler
from tests.callers import Caller
from tests.workspaces.files.calls import RAW
from vmbackend.fake.guest import FakeGuestSession

pytestmark = pytest.mark.django_db(transaction=True)
HALF = b"x" * CHUNK_BYTES


class Upload:
    """One POST, of raw bytes where nothing else is said; the test is the server between the sender and the handler."""

    def __init__(
        self,
        api: Caller,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        route: str = "overlay/files",
        method: str = "POST",
        application: Any = None,
    ) -> None:
        sent = {"host": "testserver", "content-type": RAW, **api.headers, **(headers or {})}
        self._scope = {
            "type": "http", "method": method, "path": f"/workspace/the-box/{route}", "root_path": "",
            "query_string": f"path={path}".encode(), "scheme": "http", "http_version": "1.1",
            "headers": [(name.lower().encode(), value.encode()) for name, value in sent.items()],
        }  # fmt: skip
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answer: dict[str, Any] = {"body": b""}
        self.taken = 0
        self._served = asyncio.ensure_future(
            (application or StreamingHandler())(self._scope, self._receive, self._send)
        )

    async def _receive(self) -> dict[str, Any]:
        message = await self._messages.get()
        self.taken += 1
        return message

    async def _send(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._answer["status"] = message["status"]
        else:
            self._answer["body"] += message["body"]

    def give(self, data: bytes, *, more: bool = True) -> None:
        self._messages.put_nowait({"type": "http.request", "body": data, "more_body": more})

    def leave(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    async def answer(self) -> tuple[int | None, Any]:
        await asyncio.wait_for(self._served, 20)
        return self._answer.get("status"), json.loads(self._answer["body"] or b"null")


async def until(true: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.02)


def partial(disk: Path) -> list[int]:
    """The sizes of files that are being written."""
    return [place.stat().st_size for place in disk.glob(".partial-*")]


def serve(work: Callable[[], Awaitable[Any]]) -> Any:
    return async_to_sync(work)()


def test_a_body_reaches_the_guest_before_it_is_whole(api: Caller, disk: Path) -> None:
    (disk / "file").write_bytes(b"old")

    async def work() -> Any:
        upload = Upload(api, "/file")
        upload.give(HALF)
        await until(lambda: partial(disk))
        assert (disk / "file").read_bytes() == b"old"
        upload.give(b"end", more=False)
        return await upload.answer()

    assert serve(work) == (200, {"success": True, "path": "/file", "size": CHUNK_BYTES + 3})
    assert (disk / "file").read_bytes() == HALF + b"end"
    assert partial(disk) == []


def test_a_sender_who_goes_away_leaves_the_old_file_and_nothing_else(
    api: Caller, disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # What earlier tests left to the garbage collector is logged when it comes.
    gc.collect()
    caplog.clear()
    (disk / "file").write_bytes(b"old")

    async def work() -> Any:
        upload = Upload(api, "/file")
        upload.give(HALF)
        await until(lambda: partial(disk))
        upload.leave()
        await upload.answer()
        await until(lambda: not partial(disk))

    serve(work)
    assert [place.name for place in disk.iterdir()] == ["file"]
    assert (disk / "file").read_bytes() == b"old"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_sender_who_stops_is_not_waited_for(api: Caller, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming_body, "STALL_SECONDS", 0.3)
    monkeypatch.setattr(streaming_body, "DRAIN_SECONDS", 0.1)

    async def work() -> Any:
        upload = Upload(api, "/file")
        upload.give(HALF)
        return await upload.answer()

    status, body = serve(work)
    assert (status, body["code"]) == (408, "request_timeout")
    assert list(disk.iterdir()) == []


def test_a_json_body_without_a_length_is_read(api: Caller, disk: Path) -> None:
    async def work() -> Any:
        call = Upload(api, "", {"content-type": "application/json", "transfer-encoding": "chunked"}, route="exec")
        call.give(b'{"cmd": ["echo", ')
        call.give(b'"there"]}')
        call.give(b"", more=False)
        return await call.answer()

    status, body = serve(work)
    assert (status, body["stdout"]) == (200, "there\n")


def test_too_much_without_an_announcement_is_413(api: Caller, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (disk / "file").write_bytes(b"old")
    monkeypatch.setattr(django_settings, "FILE_STREAM_LIMIT", CHUNK_BYTES)

    async def work() -> Any:
        upload = Upload(api, "/file")
        for number in range(4):
            upload.give(HALF, more=number < 3)
        return await upload.answer()

    status, body = serve(work)
    assert (status, body["code"]) == (413, "payload_too_large")
    assert [place.name for place in disk.iterdir()] == ["file"]
    assert (disk / "file").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/file", {"X-Client-Secret": "wrong"}, 401), ("relative", {}, 400), ("/folder", {}, 400)],
)
def test_a_refusal_comes_after_the_body_so_that_it_can_be_read(
    api: Caller, disk: Path, path: str, headers: dict[str, str], status: int
) -> None:
    (disk / "folder").mkdir()

    async def work() -> Any:
        upload = Upload(api, path, headers)
        upload.give(HALF)
        await until(lambda: upload.taken)
        assert "status" not in upload._answer
        upload.give(HALF, more=False)
        return await upload.answer()

    assert serve(work)[0] == status
    assert [place.name for place in disk.iterdir()] == ["folder"]


def test_a_body_without_an_end_is_not_read_for_ever(api: Caller, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming_body, "DRAIN_BYTES", 3 * CHUNK_BYTES)
    monkeypatch.setattr(streaming_body, "LINGER_BYTES", CHUNK_BYTES)

    async def work() -> Any:
        upload = Upload(api, "relative")
        for _ in range(50):
            upload.give(HALF)
        answer = await upload.answer()
        assert upload.taken < 10
        return answer

    assert serve(work)[0] == 400


def test_a_sender_quicker_than_the_guest_waits(api: Caller, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = FakeGuestSession.write
    go_on = asyncio.Event()

    async def slow(session: FakeGuestSession, path: str, chunks: AsyncIterator[bytes], **more: Any) -> int:
        async def waited() -> AsyncIterator[bytes]:
            async for chunk in chunks:
                while not go_on.is_set():
                    await asyncio.sleep(0.02)
                yield chunk

        return await write(session, path, waited(), **more)

    monkeypatch.setattr(FakeGuestSession, "write", slow)

    async def work() -> Any:
        upload = Upload(api, "/file")
        for number in range(20):
            upload.give(HALF, more=number < 19)
        await until(lambda: upload.taken)
        await asyncio.sleep(0.3)
        assert upload.taken <= 3
        go_on.set()
        return await upload.answer()

    assert serve(work)[0] == 200
    assert (disk / "file").stat().st_size == 20 * CHUNK_BYTES


@pytest.mark.parametrize("announced", [{}, {"content-length": str(50 * CHUNK_BYTES)}])
@pytest.mark.parametrize(
    ("method", "route", "kind"),
    [
        ("POST", "overlay/files", "application/json"),
        ("PUT", "overlay/files", RAW),
        ("GET", "overlay/files", RAW),
        ("POST", "overlay/x/overlay/files", RAW),
        ("POST", "exec", RAW),
    ],
)
def test_no_more_than_the_limit_of_a_spooled_body_is_stored(
    api: Caller,
    disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    announced: dict[str, str],
    method: str,
    route: str,
    kind: str,
) -> None:
    monkeypatch.setattr(django_settings, "FILE_WRITE_LIMIT", CHUNK_BYTES)
    monkeypatch.setattr(django_settings, "BODY_LIMIT", CHUNK_BYTES)
    spooled = 0

    async def counting(handler: StreamingHandler, receive: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal spooled
        file = await ASGIHandler.read_body(handler, receive)
        spooled = file.seek(0, os.SEEK_END)
        file.seek(0)
        return file

    monkeypatch.setattr(StreamingHandler, "read_body", counting, raising=False)

    async def work() -> Any:
        upload = Upload(api, "", {"content-type": kind, **announced}, route=route, method=method)
        for number in range(50):
            upload.give(HALF, more=number < 49)
        answer = await upload.answer()
        assert upload.taken == 50  # so that its sender gets to read the answer
        return answer

    status, body = serve(work)
    assert (status, body["code"]) == (413, "payload_too_large")
    assert spooled <= 2 * CHUNK_BYTES


@pytest.mark.parametrize("more", [True, False])
def test_a_body_that_is_too_large_with_its_last_piece_is_413(
    api: Caller, disk: Path, monkeypatch: pytest.MonkeyPatch, more: bool
) -> None:
    monkeypatch.setattr(django_settings, "FILE_WRITE_LIMIT", 1000)
    monkeypatch.setattr(streaming_body, "DRAIN_SECONDS", 0.2)

    async def work() -> Any:
        upload = Upload(api, "", {"content-type": "application/json"})
        upload.give(HALF, more=more)
        return await upload.answer()

    assert serve(work)[0] == 413


def test_json_is_taken_whole_as_ever(api: Caller, disk: Path) -> None:
    async def work() -> Any:
        upload = Upload(api, "", {"content-type": "application/json"})
        upload.give(b'{"content": "QUJD", ')
        upload.give(b'"path": "/file"}', more=False)
        return await upload.answer()

    assert serve(work) == (200, {"success": True, "path": "/file", "size": 3})
    assert (disk / "file").read_bytes() == b"ABC"
