"""Uploads: what each request stores, what it answers, and what the next one finds."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any
from unittest.mock import patch

import pytest
from django.conf import settings
from django.db import connections
from django.utils import timezone

from accounts.services import account_switch
from cdn import hooks
from cdn.errors import CdnPolicyViolation
from cdn.models import File, Permit
from cdn.services import processing, uploads
from cdn.services.files import file_trash
from cdn.services.sweeps import permits_expire
from cdn.states import FileStatus, PermitState
from cdn.uploads import receiving
from common import streaming_body
from common.errors import DomainError
from tests.callers import Caller
from tests.cdn.edge_files import files_clear
from tests.cdn.rows import facts_of, make_permit
from tests.cdn.uploading import Answer, Upload, offset_of, part_sent, sent, stored_part, until

pytestmark = pytest.mark.django_db(transaction=True)
DATA = os.urandom(600_000)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(settings.ENV, "cdn_upload_wait_seconds", 0)
    files_clear()
    yield
    files_clear()


@pytest.fixture
def issued(api: Caller) -> Any:
    return make_permit(api.account, size=len(DATA))


def processed(error: DomainError | None = None) -> Any:
    """Do what the worker does once a file was received."""

    def work(file_id: str) -> None:
        claim = processing.processing_claim(file_id)
        assert claim is not None
        if error is not None:
            processing.processing_reject(claim, error)
            return
        file = File.objects.get(pk=file_id)
        processing.processing_publish(claim, facts_of(file, sha256=file.sha256), [])

    return patch.object(hooks.file_received, "_handlers", [work])


def assert_error(answer: Any, status: int, code: str) -> None:
    assert (answer.status, answer.json()["code"]) == (status, code), answer
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["tus-resumable"] == "1.0.0"


@pytest.mark.parametrize("length", [len(DATA), None])
def test_a_whole_file_is_stored_and_hashed_on_its_way(issued: Any, length: int | None) -> None:
    answer = sent("PUT", issued.token, DATA[:5], DATA[5:300_000], DATA[300_000:], length=length)
    assert answer.status == 202
    assert (answer.json()["success"], answer.json()["file"]["status"]) == (True, "processing")
    file = File.objects.get()
    assert (file.sha256, file.size) == (sha256(DATA).hexdigest(), len(DATA))
    assert stored_part(file.pk) == DATA
    assert offset_of(issued.token) == len(DATA)


def test_the_answer_waits_for_what_becomes_of_the_file(issued: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings.ENV, "cdn_upload_wait_seconds", 20)
    with processed():
        answer = sent("PUT", issued.token, DATA)
    assert (answer.status, answer.json()["file"]["status"]) == (201, "active")
    assert sha256(DATA).hexdigest()[:32] in answer.json()["file"]["url"]


def test_a_file_that_is_refused_is_an_error_of_its_upload(issued: Any) -> None:
    details = {"rule": "allowedKinds", "limit": ["image"], "actual": "other"}
    with processed(CdnPolicyViolation(details=details)):
        answer = sent("PUT", issued.token, DATA)
    assert_error(answer, 400, "cdn_policy_violation")
    assert answer.json()["details"] == details
    assert stored_part(issued.file.pk) is None
    assert offset_of(issued.token) is None


def test_a_smaller_body_is_the_whole_file(issued: Any) -> None:
    assert sent("PUT", issued.token, b"small").status == 202
    file = File.objects.get()
    assert (file.size, file.sha256) == (5, sha256(b"small").hexdigest())
    answer = sent("HEAD", issued.token)
    assert (answer.headers["upload-offset"], answer.headers["upload-length"]) == ("5", "5")


def test_an_upload_that_has_ended_is_no_guess(issued: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[object] = []
    monkeypatch.setattr("cdn.uploads.views.count_wrong_secret", counted.append)
    assert sent("PUT", issued.token, DATA).status == 202
    assert sent("PUT", issued.token, DATA).status == 404
    Permit.objects.update(expires_at=timezone.now())
    assert offset_of(issued.token) is None
    assert counted == []
    assert sent("PUT", "guessed" * 6, DATA).status == 404
    assert len(counted) == 1


def test_an_empty_body_is_refused_and_the_address_stays(issued: Any) -> None:
    assert_error(sent("PUT", issued.token, length=0), 400, "validation_error")
    assert offset_of(issued.token) == 0
    assert sent("PUT", issued.token, DATA).status == 202


def test_requests_that_send_an_empty_file_find_it_complete(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends its no bytes gets the same answer, as often as it does."""
    empty = make_permit(api.account, size=0)
    head = sent("HEAD", empty.token)
    assert (head.status, head.headers["upload-offset"], head.headers["upload-length"]) == (200, "0", "0")
    for _ in range(2):
        answer = sent("PUT", empty.token, length=0)
        assert (answer.status, answer.json()["file"]["status"]) == (202, "processing")
        answer = part_sent(empty.token, 0, length=0)
        assert (answer.status, answer.headers["upload-offset"]) == (204, "0")
    assert_error(sent("PUT", empty.token, b"x"), 413, "payload_too_large")
    assert_error(part_sent(empty.token, 0, b"x"), 413, "payload_too_large")
    file_trash(file=empty.file, actor="test")
    assert_error(sent("PUT", empty.token, length=0), 409, "cancelled")
    assert File.objects.get().status == "rejected"


def test_an_empty_file_that_is_refused_is_an_error_of_its_upload(api: Caller) -> None:
    details = {"rule": "allowedKinds", "limit": ["image"], "actual": "document"}
    with processed(CdnPolicyViolation(details=details)):
        empty = make_permit(api.account, size=0)
    assert_error(sent("PUT", empty.token, length=0), 400, "cdn_policy_violation")
    assert offset_of(empty.token) is None


def test_a_length_above_the_permit_is_refused_before_a_byte_is_stored(issued: Any) -> None:
    answer = sent("PUT", issued.token, DATA, b"x", length=len(DATA) + 1)
    assert_error(answer, 413, "payload_too_large")
    assert stored_part(issued.file.pk) is None
    answer = part_sent(issued.token, 0, DATA, b"x", length=len(DATA) + 1)
    assert_error(answer, 413, "payload_too_large")
    assert stored_part(issued.file.pk) is None
    assert sent("PUT", issued.token, DATA).status == 202


def test_more_bytes_than_the_permit_are_cut_off(issued: Any) -> None:
    for pieces in ([DATA, b"x"], [DATA] * 9):
        assert_error(sent("PUT", issued.token, *pieces), 413, "payload_too_large")
        assert len(stored_part(issued.file.pk) or b"") <= len(DATA)
        assert offset_of(issued.token) == 0
    assert sent("PUT", issued.token, DATA).status == 202
    assert stored_part(issued.file.pk) == DATA


def test_a_part_beyond_the_permit_leaves_what_was_there(issued: Any) -> None:
    assert part_sent(issued.token, 0, DATA[:1000]).status == 204
    assert_error(part_sent(issued.token, 1000, DATA), 413, "payload_too_large")
    assert offset_of(issued.token) == 1000
    assert part_sent(issued.token, 1000, DATA[1000:]).status == 204
    assert File.objects.get().sha256 == sha256(DATA).hexdigest()


@pytest.mark.parametrize("cut", [0, 1, 1000, 300_000, len(DATA) - 1])
def test_a_client_that_leaves_goes_on_where_it_was(issued: Any, cut: int) -> None:
    answer = sent("PUT", issued.token, DATA[:cut], leaves=True, length=len(DATA))
    assert answer.status in (0, 400)
    assert File.objects.get().status == FileStatus.UPLOADING
    assert offset_of(issued.token) == cut
    assert stored_part(issued.file.pk) == DATA[:cut]
    assert part_sent(issued.token, cut, DATA[cut:]).status == 204
    file = File.objects.get()
    assert (file.status, file.sha256) == (FileStatus.PROCESSING, sha256(DATA).hexdigest())


@pytest.mark.parametrize("part", [False, True])
def test_a_file_that_is_not_complete_never_looks_so(issued: Any, part: bool) -> None:
    """A request that ended after the last byte and before the end of its body: clients stop at the file's length."""
    if part:
        part_sent(issued.token, 0, DATA, leaves=True)
    else:
        sent("PUT", issued.token, DATA, leaves=True)
    assert File.objects.get().status == FileStatus.UPLOADING
    assert offset_of(issued.token) == len(DATA) - 1
    assert part_sent(issued.token, len(DATA) - 1, DATA[-1:]).status == 204
    file = File.objects.get()
    assert (file.status, file.sha256) == (FileStatus.PROCESSING, sha256(DATA).hexdigest())
    assert offset_of(issued.token) == len(DATA)


def test_all_bytes_of_a_process_that_was_killed_before_the_end_look_not_complete(issued: Any) -> None:
    grant = uploads.upload_begin(issued.token, length=None, offset=None, owner="killed")
    uploads.upload_progress(grant, len(DATA))
    assert offset_of(issued.token) == len(DATA) - 1


def test_a_body_without_its_last_chunk_is_no_whole_file(issued: Any) -> None:
    assert sent("PUT", issued.token, DATA[:1000], leaves=True).status in (0, 400)
    assert Permit.objects.get().state == PermitState.OPEN
    assert offset_of(issued.token) == 1000


def test_another_put_begins_again(issued: Any) -> None:
    sent("PUT", issued.token, DATA[:1000], leaves=True)
    assert sent("PUT", issued.token, DATA[::-1]).status == 202
    assert stored_part(issued.file.pk) == DATA[::-1]


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip"])
def test_a_coded_body_is_not_taken_for_the_file(issued: Any, coding: str) -> None:
    assert_error(sent("PUT", issued.token, DATA, Content_Encoding=coding), 415, "unsupported_media_type")
    assert_error(part_sent(issued.token, 0, DATA, Content_Encoding=coding), 415, "unsupported_media_type")
    assert (offset_of(issued.token), stored_part(issued.file.pk)) == (0, None)
    assert sent("PUT", issued.token, DATA, Content_Encoding="identity").status == 202


def test_unknown_used_and_ended_addresses_are_one_answer(issued: Any, api: Caller) -> None:
    other, ended = make_permit(api.account), make_permit(api.account)
    sent("PUT", issued.token, DATA)
    Permit.objects.filter(pk=ended.file.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    forged = other.token[:-1] + ("A" if other.token[-1] != "A" else "B")
    found = []
    for token in (forged, "x", "upl_" + "a" * 500, "..", issued.token, ended.token):
        for answer in (sent("PUT", token, b"x"), part_sent(token, 0, b"x")):
            body = answer.json()
            body.pop("request_id")
            found.append((answer.status, body))
    assert all(each == found[0] for each in found)
    assert (found[0][0], found[0][1]["code"]) == (404, "not_found")
    assert offset_of(ended.token) is offset_of(forged) is None
    permits_expire()
    assert offset_of(ended.token) is None


@pytest.mark.parametrize("end", ["deleted", "account", "time"])
def test_what_is_being_sent_ends_with_its_address(
    issued: Any, api: Caller, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(receiving, "CHECKPOINT_SECONDS", 1000.0)
    monkeypatch.setattr(streaming_body, "DRAIN_SECONDS", 0.1)

    def change() -> None:
        if end == "deleted":
            assert api.delete(f"/cdn/files/{issued.file.pk}").status_code == 200
        elif end == "account":
            account_switch(api.account, is_active=False)
        else:
            Permit.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        connections.close_all()

    async def work() -> Answer:
        upload = Upload("PUT", issued.token, [DATA[:300_000], asyncio.Event()], length=len(DATA))
        task = asyncio.ensure_future(upload.run())
        await until(lambda: stored_part(issued.file.pk))
        await asyncio.to_thread(change)
        return await asyncio.wait_for(task, 30)

    assert_error(asyncio.run(work()), 404, "not_found")


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "TRACE"])
def test_other_methods_are_refused(issued: Any, method: str) -> None:
    answer = sent(method, issued.token, b"x")
    assert answer.status == 405
    assert offset_of(issued.token) == 0


def test_no_credential_is_needed_or_looked_at(issued: Any) -> None:
    wrong = {"X_Client_ID": "cli_unknown", "X_Client_Secret": "wrong", "Authorization": "Bearer nonsense"}
    assert sent("PUT", issued.token, DATA, **wrong).status == 202
