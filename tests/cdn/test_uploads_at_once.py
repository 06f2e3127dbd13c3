"""Uploads beside each other, beside sweeps, on a full disk, and with a clock or a database that fails."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import OperationalError
from django.utils import timezone

from cdn.models import File, Permit
from cdn.services.sweeps import permits_expire
from cdn.services.uploads import upload_progress
from cdn.states import FileStatus, PermitState
from cdn.uploads import receiving
from tests.callers import Caller
from tests.cdn.edge_files import files_clear
from tests.cdn.rows import make_permit
from tests.cdn.uploading import Upload, offset_of, sent, stored_part, until
from tests.small_disk import small_disk

pytestmark = pytest.mark.django_db(transaction=True)
DATA = os.urandom(600_000)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(settings.ENV, "cdn_upload_wait_seconds", 0)
    monkeypatch.setattr(receiving, "CHECKPOINT_SECONDS", 0.1)
    files_clear()
    yield
    files_clear()


@pytest.fixture
def issued(api: Caller) -> Any:
    return make_permit(api.account, size=len(DATA))


async def written(file_id: str, size: int) -> None:
    await until(lambda: len(stored_part(file_id) or b"") >= size)


def in_pieces(data: bytes, event: asyncio.Event, first: int = 300_000) -> list[bytes | asyncio.Event]:
    """Data that stops after its first piece until the event."""
    return [data[:first], event, data[first:]]


def test_uploads_of_two_accounts_beside_each_other_are_not_mixed(new_account: Any) -> None:
    contents = [bytes([number]) * (700_000 + number) for number in range(6)]
    permits = [make_permit(new_account().account, size=len(data)) for data in contents]

    async def run() -> list[Any]:
        event = asyncio.Event()
        requests = [
            Upload("PUT", made.token, in_pieces(data, event)) for made, data in zip(permits, contents, strict=True)
        ]
        running = [asyncio.ensure_future(request.run()) for request in requests]
        for made in permits:
            await written(made.file.pk, 240 * 1024)
        event.set()
        return list(await asyncio.gather(*running))

    assert [answer.status for answer in asyncio.run(run())] == [202] * 6
    for made, data in zip(permits, contents, strict=True):
        assert File.objects.get(pk=made.file.pk).sha256 == sha256(data).hexdigest()
        assert stored_part(made.file.pk) == data


def test_a_second_writer_is_refused_and_the_first_goes_on(issued: Any) -> None:
    async def run() -> tuple[Any, Any]:
        event = asyncio.Event()
        first = asyncio.ensure_future(Upload("PUT", issued.token, in_pieces(DATA, event)).run())
        await written(issued.file.pk, 240 * 1024)
        beside = Upload("PUT", issued.token, [DATA[::-1]])
        second = asyncio.ensure_future(beside.run())
        await until(lambda: beside.answer.status)
        event.set()
        await asyncio.gather(first, second)
        return first.result(), second.result()

    first, second = asyncio.run(run())
    assert (first.status, second.status, second.json()["code"]) == (202, 409, "conflict")
    assert stored_part(issued.file.pk) == DATA


def test_the_row_shows_what_was_flushed_while_bytes_come(issued: Any) -> None:
    async def run() -> Any:
        event = asyncio.Event()
        request = asyncio.ensure_future(Upload("PUT", issued.token, in_pieces(DATA, event)).run())
        received = sync_to_async(lambda: Permit.objects.get().received_bytes)
        seen = 0
        while not seen:
            seen = await received()
            await asyncio.sleep(0.05)
        assert seen <= len(stored_part(issued.file.pk) or b"")
        event.set()
        return await request

    assert asyncio.run(run()).status == 202


@pytest.mark.parametrize("lost", ["expired", "taken over"])
def test_an_upload_that_has_lost_its_permit_ends_at_once(issued: Any, lost: str) -> None:
    """Its client still sends."""

    def lose() -> None:
        if lost == "expired":
            Permit.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
            assert permits_expire() == 1
        else:
            Permit.objects.update(lease_owner="another")

    async def run() -> Any:
        request = asyncio.ensure_future(Upload("PUT", issued.token, in_pieces(DATA, asyncio.Event())).run())
        await written(issued.file.pk, 240 * 1024)
        await sync_to_async(lose)()
        with patch("common.streaming_body.DRAIN_SECONDS", 0.2):
            return await asyncio.wait_for(request, 20)

    assert asyncio.run(run()).status == 404
    file = File.objects.get()
    if lost == "expired":
        assert (file.status, stored_part(file.pk), offset_of(issued.token)) == (FileStatus.REJECTED, None, None)
    else:
        assert (file.status, Permit.objects.get().lease_owner) == (FileStatus.UPLOADING, "another")


def test_a_database_that_is_away_for_a_moment_ends_no_upload(issued: Any) -> None:
    failed = []

    def flaky(*arguments: Any) -> None:
        if len(failed) < 3:
            failed.append(True)
            raise OperationalError("away")
        upload_progress(*arguments)

    async def run() -> Any:
        event = asyncio.Event()
        request = asyncio.ensure_future(Upload("PUT", issued.token, in_pieces(DATA, event)).run())
        await until(lambda: len(failed) == 3)
        event.set()
        return await request

    with patch.object(receiving, "upload_progress", flaky):
        assert asyncio.run(run()).status == 202


def test_a_body_that_stalls_keeps_what_came(issued: Any) -> None:
    async def run() -> Any:
        with patch("common.streaming_body.STALL_SECONDS", 0.5), patch("common.streaming_body.DRAIN_SECONDS", 0.2):
            return await Upload("PUT", issued.token, in_pieces(DATA, asyncio.Event())).run()

    answer = asyncio.run(run())
    assert (answer.status, answer.json()["code"]) == (408, "request_timeout")
    assert offset_of(issued.token) == 300_000


def test_a_clock_that_was_set_back_ends_no_upload(issued: Any) -> None:
    real = timezone.now
    sent("PUT", issued.token, DATA[:1000], leaves=True)
    with patch("django.utils.timezone.now", lambda: real() - timedelta(days=400)):
        assert offset_of(issued.token) == 1000
        assert sent("PUT", issued.token, DATA).status == 202


def test_a_full_disk_is_a_documented_error_and_the_part_stays(issued: Any, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("mounts a file system")
    with small_disk(tmp_path, 8) as disk, patch.object(settings, "STATE", tmp_path):
        sent("PUT", issued.token, DATA[:300_000], leaves=True)
        assert offset_of(issued.token) == 300_000
        disk.fill()
        answer = sent("PUT", issued.token, DATA)
        assert (answer.status, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
        assert answer.headers["retry-after"] == "5"
        kept = offset_of(issued.token)
        assert kept is not None
        assert stored_part(issued.file.pk)[:kept] == DATA[:kept]  # type: ignore[index]
        assert Permit.objects.get().state == PermitState.OPEN
        disk.make_room()
        assert sent("PUT", issued.token, DATA).status == 202
        assert stored_part(issued.file.pk) == DATA
