"""Trees deeper than Python recurses and names as long as a kernel takes: each route answers, none with a failure."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import tarfile
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.vmbackend.deep_trees import fill_levels
from tests.workspaces.runtime.conftest import Holder
from tests.workspaces.runtime.test_uploads import entry, tar, upload
from vmbackend.backend import machines_dir
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.archives import archive_paths
from vmbackend.guest.session import TreeEntry

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox"),
]
LEVELS = 1500
TOO_LONG = ("/" + "n" * 256, "/" + "n" * 4000, "/" + "m" * 255 + "/" + "n" * 256, "/" + "ä" * 128)
ROUTES: dict[str, Callable[[Holder, str], Any]] = {
    "list": lambda holder, path: holder.ask("/files", path=path),
    "stat": lambda holder, path: holder.ask("/files/stat", path=path),
    "read": lambda holder, path: holder.ask("/files/read", path=path),
    "write": lambda holder, path: holder.post("/files/write", {"path": path, "content": "x", "create_dirs": True}),
    "append": lambda holder, path: holder.post("/files/write", {"path": path, "content": "x", "append": True}),
    "mkdir": lambda holder, path: holder.post("/files/mkdir", {"path": path}),
    "delete": lambda holder, path: holder.post("/files/delete", {"path": path}),
    "download": lambda holder, path: holder.post("/files/transfer/download", {"paths": [path]}),
    "upload": lambda holder, path: upload(holder, gzip.compress(tar(entry("f"))), dest=path),
    "search": lambda holder, path: holder.ask("/files/search", path=path, q="x"),
}  # fmt: skip


def test_a_deep_archive_is_unpacked_listed_and_removed(holder: Holder) -> None:
    deep = gzip.compress(tar(entry("d/" * LEVELS + "f", b"x"), form=tarfile.GNU_FORMAT))
    assert upload(holder, deep).json()["files_extracted"] == 1
    assert upload(holder, gzip.compress(tar(entry("more")))).status_code == 200
    assert holder.found("/files", path="/there", flatten="true")["count"] == 65
    last = "/there" + "/d" * LEVELS
    assert holder.found("/files/read", path=f"{last}/f")["content"] == "x"
    _, lines = holder.streamed("/files/stream", path="/there", flatten="true")
    assert b'"done"' in b"".join(lines)
    holder.posted("/files/write", {"path": f"{last}/made/here", "content": "y", "create_dirs": True})
    holder.posted("/files/mkdir", {"path": "/made" + "/d" * LEVELS})
    holder.posted("/files/delete", {"path": "/there"})
    assert not (holder.disk / "there").exists()


def test_what_is_deeper_than_a_path_is_long_is_in_nobodys_way(holder: Holder) -> None:
    (holder.disk / "beyond").mkdir()
    fill_levels(holder.disk / "beyond", 2100)
    assert upload(holder, gzip.compress(tar(entry("x")))).status_code == 200
    assert holder.found("/files", path="/beyond", flatten="true")["count"] == 64
    holder.posted("/files/delete", {"path": "/beyond"})
    assert not (holder.disk / "beyond").exists()


@pytest.mark.parametrize("route", ROUTES)
def test_a_name_that_no_kernel_takes_is_refused(holder: Holder, route: str) -> None:
    for path in TOO_LONG:
        answer = ROUTES[route](holder, path)
        assert answer.status_code in (400, 404), answer.content
        assert answer.json()["code"] in ("path_invalid", "path_not_found"), answer.content


def test_a_download_whose_walk_fails_ends(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(session: FakeGuestSession, path: str, **options: Any) -> AsyncIterator[list[TreeEntry]]:
        raise RecursionError("of this process")
        yield []

    monkeypatch.setattr(FakeGuestSession, "walk_streamed", fails)
    (holder.disk / "folder").mkdir()

    async def read(session: Any) -> None:
        async for _ in archive_paths(session, ["/folder"]):
            pass

    with pytest.raises(RecursionError):
        asyncio.run(asyncio.wait_for(read(FakeGuestSession(machines_dir(), holder.id)), 20))
