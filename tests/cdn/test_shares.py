"""What one account does to the CDN costs its neighbours, and the host, little."""

from __future__ import annotations

import asyncio
import tempfile
import tracemalloc
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Q
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from cdn import storage
from cdn.delivery.addresses import address_of
from cdn.media import sweep
from cdn.models import File, Permit
from cdn.services import deliveries, files, processing, sweeps
from cdn.services.permits import IssuedPermit
from cdn.uploads import places
from common import streaming_body
from tests.callers import Caller
from tests.cdn.forms import form, token_of
from tests.cdn.received import received_file
from tests.cdn.rows import make_file, make_permit, upload
from tests.cdn.uploading import Upload, offset_of, part_sent, sent, stored_part, until

pytestmark = pytest.mark.django_db(transaction=True)


def test_accounts_take_turns_at_the_worker(api: Caller, stranger: Caller) -> None:
    mine = [upload(make_permit(api.account, size=1)) for _ in range(210)]
    theirs = upload(make_permit(stranger.account, size=1))
    File.objects.filter(pk__in=[file.pk for file in mine]).update(lease_until=timezone.now() - timedelta(seconds=60))
    assert theirs.pk in processing.processing_due()[:2]
    for file in mine[:2]:
        assert processing.processing_claim(file.pk) is not None
    assert processing.processing_due()[0] == theirs.pk


def test_a_file_that_was_never_claimed_comes_before_those_that_were(api: Caller) -> None:
    first, second = (upload(make_permit(api.account, size=1)) for _ in range(2))
    File.objects.filter(pk=first.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert processing.processing_due() == [second.pk, first.pk]


def test_the_next_file_is_that_of_the_account_whose_files_are_not_looked_at(api: Caller, stranger: Caller) -> None:
    mine = [received_file(api.account, b"mine") for _ in range(3)]
    theirs = received_file(stranger.account, b"theirs")
    assert processing.processing_claim(mine[0].pk) is not None
    assert sweep.next_process()
    theirs.refresh_from_db()
    assert theirs.status == "active"
    assert (sweep.next_process(), sweep.next_process(), sweep.next_process()) == (True, True, False)


def test_every_rejected_row_is_removed_in_time_however_many_there_are(api: Caller, stranger: Caller) -> None:
    for number in range(450):
        account = (stranger if number % 9 == 0 else api).account
        files.file_trash(file=make_permit(account, size=1).file, actor="test")
    File.objects.update(rejected_at=timezone.now() - timedelta(days=2))
    assert sweeps.rejected_prune() == 450
    assert not File.objects.exists()
    assert sweeps.rejected_prune() == 0


def test_parts_of_ended_files_are_removed_beyond_the_first_batch(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_BATCH", 3)
    issued = sorted((make_permit(api.account, size=1) for _ in range(5)), key=lambda each: each.file.pk)
    for each in issued:
        storage.part_path(each.file.pk).write_bytes(b"x")
    last = issued[-1].file
    File.objects.filter(pk=last.pk).update(status="rejected")
    assert sweep.ended_parts_remove() == 1
    assert [stored_part(each.file.pk) for each in issued] == [b"x"] * 4 + [None]


def test_an_error_with_one_accounts_files_delays_no_other(api: Caller, stranger: Caller) -> None:
    made = [make_file(caller.account) for caller in (api, stranger)]
    File.objects.update(status="trashed", purge=True)
    purge = sweeps.purge_batch

    def failing(account_id: str) -> int:
        if account_id == min(file.account_id for file in made):
            raise DatabaseError("one of its rows")
        return purge(account_id)

    with patch.object(sweeps, "purge_batch", failing), patch.object(files, "_trashed_sums", lambda rows: {}):
        assert sweeps.purges_continue() == 1
    assert File.objects.count() == 1


def test_an_address_of_no_file_costs_no_lock(api: Caller) -> None:
    unknown = address_of("/f/file_aaaaaaaaaaaaaaaa/" + "0" * 32 + ".png")
    assert unknown is not None
    with CaptureQueriesContext(connection) as seen:
        assert deliveries.file_deliver(unknown) == ""
    assert len(seen.captured_queries) == 1
    assert seen.captured_queries[0]["sql"].startswith("SELECT")


def paused(issued: Sequence[IssuedPermit], end: asyncio.Event, *pieces: bytes) -> list[Upload]:
    """Requests whose clients pause after these pieces, and leave at the end."""
    return [Upload("PUT", each.token, [*pieces, end], leaves=True) for each in issued]


def test_an_account_sends_so_many_files_at_once_and_loses_nothing(
    api: Caller, stranger: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "UPLOADS_AT_ONCE", 2)
    *sending, third = (make_permit(api.account, size=10) for _ in range(3))
    assert sent("PUT", third.token, b"12345", leaves=True).status in (0, 400)
    other = make_permit(stranger.account, size=4)

    async def run() -> list[Any]:
        end = asyncio.Event()
        running = [asyncio.ensure_future(request.run()) for request in paused(sending, end, b"first")]
        await until(lambda: places._receiving[api.account.pk] == 2)
        begun = [Upload("PUT", third.token, [b"again"]), Upload("PUT", other.token, [b"free"])]
        asking = [asyncio.ensure_future(request.run()) for request in begun]
        await until(lambda: all(request.answer.status for request in begun))
        end.set()
        await asyncio.gather(*running)
        return await asyncio.gather(*asking)

    refused, received = asyncio.run(run())
    assert (refused.status, refused.json()["code"], refused.headers["retry-after"]) == (429, "rate_limited", "2")
    assert received.status == 202
    assert offset_of(third.token) == 5
    assert part_sent(third.token, 5, b"67890").status == 204
    assert not places._receiving


def test_what_has_come_is_stored_while_its_sender_pauses(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming_body, "FLUSH_SECONDS", 0.05)
    issued = make_permit(api.account, size=2000)

    async def run() -> None:
        end = asyncio.Event()
        running = asyncio.ensure_future(paused([issued], end, b"x" * 1000)[0].run())
        await until(lambda: stored_part(issued.file.pk) == b"x" * 1000)
        end.set()
        await running

    asyncio.run(run())


def test_bodies_that_stall_hold_no_memory(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming_body, "FLUSH_SECONDS", 0.05)
    size, count = 200_000, 40
    issued = [make_permit(api.account, size=1_000_000) for _ in range(count)]

    async def run() -> int:
        end = asyncio.Event()
        tracemalloc.start()
        # Each gets bytes of its own.
        requests = [paused([each], end, *(bytes(size // 4) for _ in range(4)))[0] for each in issued]
        running = [asyncio.ensure_future(request.run()) for request in requests]
        await until(lambda: all(len(stored_part(each.file.pk) or b"") == size for each in issued))
        await asyncio.sleep(0.3)
        found = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, streaming_body.__file__)])
        tracemalloc.stop()
        end.set()
        await asyncio.gather(*running)
        return sum(trace.size for trace in found.traces)

    assert asyncio.run(run()) < size
    assert set(Permit.objects.values_list("received_bytes", flat=True)) == {size}


def test_a_form_of_unknown_length_is_neither_held_in_memory_nor_spooled(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings.ENV, "cdn_upload_wait_seconds", 0)
    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", None)
    token, piece, count = token_of(api), bytes(250_000), 200
    body, kind = form(b"|")
    head, tail = body.split(b"|")
    headers = {"Authorization": f"Bearer {token}", "Content_Type": kind}
    upload = Upload("POST", "", [head, *[piece] * count, tail], path="/cdn/api", **headers)
    tracemalloc.start()
    answer = asyncio.run(upload.run())
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (answer.status, answer.json()["size"]) == (202, len(piece) * count)
    assert most < 8 << 20


def test_purging_waits_for_no_other_account(api: Caller, stranger: Caller) -> None:
    mine, theirs = make_file(api.account), make_file(stranger.account)
    for file in (mine, theirs):
        files.file_trash(file=file, actor="test")
    assert files.trash_purge(account=api.account, within=Q(), actor="test") == (1, True)
    assert list(File.objects.values_list("pk", flat=True)) == [theirs.pk]
