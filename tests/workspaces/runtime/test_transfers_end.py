"""Uploads and downloads of a machine that ends under them: nobody waits until SSH notices, after a minute."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from asgiref.sync import sync_to_async

from common import streaming_body
from tests.asgi import Request
from tests.workspaces.runtime.conftest import Holder
from tests.workspaces.runtime.test_uploads import entry, tar
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.session import TreeEntry
from workspaces import guests
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox"),
]
SECONDS = 20.0  # far below the minute that SSH, or a body that stalls, takes
ARCHIVE = gzip.compress(tar(entry("file", os.urandom(1 << 20))))


class Stalled(Request):
    """A request whose client sends a part of its body and nothing more."""

    async def _receive(self) -> dict[str, Any]:
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": self._data[:500_000], "more_body": True}
        await self._gone.wait()
        return {"type": "http.disconnect"}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(streaming_body, "DRAIN_SECONDS", 0.1)
    monkeypatch.setattr(streaming_body, "LINGER_SECONDS", 0.1)


def archive(holder: Holder) -> Request:
    headers = {"Authorization": f"Bearer {holder.token}"}
    return Stalled("/r/files/transfer/upload?dest=/d", headers, "POST", ARCHIVE)


def link_to_replace(holder: Holder) -> Request:
    return Stalled(link(holder, "PUT"), {}, "PUT", bytes(1 << 20))


def link(holder: Holder, method: str) -> str:
    made = holder.posted("/files/links", {"path": "/file", "method": method, "ttl_seconds": 60})
    return str(urlsplit(made["url"]).path)


def end(holder: Holder, status: str) -> None:
    Workspace.objects.filter(pk=holder.id).update(status=status)


async def served_until_the_end(holder: Holder, request: Request, status: str, seconds: float = 1.0) -> None:
    running = asyncio.create_task(request.run())
    await asyncio.sleep(seconds)
    assert not running.done()
    await sync_to_async(end)(holder, status)
    await asyncio.wait({running}, timeout=SECONDS)
    is_over = running.done()
    request.leave()
    await asyncio.wait({running}, timeout=SECONDS)
    assert is_over


@pytest.mark.parametrize("status", [Status.STOPPED, Status.LOST])
@pytest.mark.parametrize("begin", [archive, link_to_replace])
def test_a_stalled_upload_ends_with_its_machine(
    holder: Holder, begin: Callable[[Holder], Request], status: str
) -> None:
    (holder.disk / "file").write_text("old")
    request = begin(holder)
    asyncio.run(served_until_the_end(holder, request, status))
    assert (request.status, request.json()["code"]) == (409, "vm_not_running")
    assert (holder.disk / "file").read_text() == "old"
    assert not list(holder.disk.glob(".partial*"))


async def hangs(*_: Any, **__: Any) -> AsyncIterator[bytes]:
    """A guest whose machine has gone in the middle of a file."""
    yield b"first"
    await asyncio.sleep(60)


async def hangs_walking(*_: Any, **__: Any) -> AsyncIterator[list[TreeEntry]]:
    yield [TreeEntry("file", "file", 0, 0, is_regular=True)]
    await asyncio.sleep(60)


@pytest.mark.parametrize("route", ["link", "stream"])
def test_a_download_ends_with_its_machine(holder: Holder, monkeypatch: pytest.MonkeyPatch, route: str) -> None:
    (holder.disk / "file").write_bytes(bytes(1 << 20))
    monkeypatch.setattr(FakeGuestSession, "read", hangs)
    monkeypatch.setattr(FakeGuestSession, "walk_streamed", hangs_walking)
    headers = {"Authorization": f"Bearer {holder.token}"}
    request = Request(link(holder, "GET") if route == "link" else "/r/files/stream?path=/", headers)
    asyncio.run(served_until_the_end(holder, request, Status.STOPPED))
    assert request.status == 200
