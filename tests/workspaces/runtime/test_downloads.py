"""`POST /files/transfer/download`: archives that the guest makes while they are read."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from tests.described import DescribedAsyncClient
from tests.vmbackend.test_archives import fill, members
from tests.workspaces.runtime.conftest import Holder
from tests.world import assert_error
from vmbackend.errors import GuestPathInvalid
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.session import TreeEntry
from workspaces.errors import PathInvalid

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox"),
]
DOWNLOAD = "/files/transfer/download"


def read(holder: Holder, body: Any) -> bytes:
    async def call() -> bytes:
        headers = {"Authorization": f"Bearer {holder.token}"}
        data = json.dumps(body)
        asked: Any = DescribedAsyncClient().post(
            f"/r{DOWNLOAD}", data, content_type="application/json", headers=headers
        )
        answer = await asyncio.wait_for(asked, 60)
        assert (answer.status_code, answer["Content-Type"]) == (200, "application/gzip")
        return b"".join([chunk async for chunk in answer.streaming_content])

    return async_to_sync(call)()


def test_names_are_relative_to_the_root(holder: Holder) -> None:
    fill(holder.disk)
    found = members(read(holder, {"paths": ["/w/", "/-file"], "exclude_patterns": ["*.log"]}))
    assert sorted(found) == ["-file", "w", "w/a.txt", "w/deep", "w/deep/b\nc", "w/link"]
    assert (found["w/link"].linkname, found["w/deep/b\nc"].size, found["w"].isdir()) == ("deep", 300_000, True)
    assert sorted(members(read(holder, {"paths": ["/w/link"]}))) == ["w/link"]


def test_a_path_that_is_missing_is_an_error_before_the_first_byte(holder: Holder) -> None:
    fill(holder.disk)
    assert_error(holder.post(DOWNLOAD, {"paths": ["/w", "/none"]}), 404, "path_not_found")


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({}, "paths"), ({"paths": []}, "paths"), ({"paths": "/w"}, "paths"), ({"paths": ["w"]}, "paths"),
        ({"paths": ["/w\0"]}, "paths"), ({"paths": ["/w/../x"]}, "paths"), ({"paths": ["/w"] * 101}, "paths"),
        ({"paths": ["/"], "exclude_patterns": [""]}, "exclude_patterns"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(holder: Holder, body: Any, name: str) -> None:
    answer = holder.post(DOWNLOAD, body)
    assert_error(answer, 400, "validation_error")
    assert {key.partition(".")[0] for key in answer.json()["details"]} == {name}


def test_it_takes_the_token(holder: Holder) -> None:
    assert_error(holder.post(DOWNLOAD, {"paths": ["/"]}, token="none"), 401, "unauthorized")
    assert_error(holder.get(DOWNLOAD), 405)


def test_a_file_that_is_gone_breaks_the_archive_off(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(holder.disk)

    async def walk_streamed(session: FakeGuestSession, path: str, **options: Any) -> AsyncIterator[list[TreeEntry]]:
        yield [TreeEntry(name, "file", 1, 0.0, True) for name in ("a.txt", "gone")]

    monkeypatch.setattr(FakeGuestSession, "walk_streamed", walk_streamed)
    with pytest.raises((GuestPathInvalid, PathInvalid, AssertionError)):
        read(holder, {"paths": ["/w"]})
