"""Uploads in parts: offsets, headers, and what a part that is cut off or sent twice leaves."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from cdn.errors import CdnPolicyViolation
from cdn.models import File
from cdn.storage.parts import PartFile
from tests.cdn.test_uploads import DATA, assert_error, clean, issued, processed
from tests.cdn.uploading import PART, offset_of, part_sent, sent, stored_part

__all__ = ["clean", "issued"]  # fixtures

pytestmark = pytest.mark.django_db(transaction=True)


def test_parts_of_any_size_make_the_file(issued: Any) -> None:
    offset = 0
    for size in (1, 239_999, 2, 100_000, len(DATA)):
        piece = DATA[offset : offset + size]
        answer = part_sent(issued.token, offset, piece)
        offset += len(piece)
        assert (answer.status, answer.headers["upload-offset"], answer.body) == (204, str(offset), b"")
        assert answer.headers["upload-expires"].endswith("GMT")
    assert File.objects.get().sha256 == sha256(DATA).hexdigest()
    assert part_sent(issued.token, offset, b"").status == 404


@pytest.mark.parametrize("offset", [0, 999, 1001, len(DATA)])
def test_a_part_at_another_offset_is_a_conflict(issued: Any, offset: int) -> None:
    part_sent(issued.token, 0, DATA[:1000])
    answer = part_sent(issued.token, offset, b"x")
    assert_error(answer, 409, "conflict")
    assert answer.json()["details"] == {"offset": 1000}
    assert stored_part(issued.file.pk) == DATA[:1000]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Content_Type": "application/octet-stream"}, 415, "unsupported_media_type"),
        ({"Upload_Offset": ""}, 400, "validation_error"),
        ({"Upload_Offset": "-1"}, 400, "validation_error"),
        ({"Upload_Offset": "1e3"}, 400, "validation_error"),
        ({"Upload_Offset": "٣"}, 400, "validation_error"),
        ({"Upload_Offset": "9" * 17}, 400, "validation_error"),
        ({"Tus_Resumable": "0.2.2"}, 412, "precondition_failed"),
    ],
)
def test_headers_of_parts_that_are_wrong(issued: Any, headers: dict[str, str], status: int, code: str) -> None:
    answer = part_sent(issued.token, 0, b"x", **headers)
    assert_error(answer, status, code)
    if status == 412:
        assert answer.headers["tus-version"] == "1.0.0"
    assert offset_of(issued.token) == 0


def test_a_part_that_is_sent_by_put_is_not_taken_for_the_file(issued: Any) -> None:
    answer = sent("PUT", issued.token, DATA[:1000], Content_Range=f"bytes 0-999/{len(DATA)}")
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {"Content-Range"}
    assert (offset_of(issued.token), stored_part(issued.file.pk)) == (0, None)


def test_the_last_part_of_a_file_that_is_refused_at_once_was_received(issued: Any) -> None:
    """The outcome of the file comes by its status, and not by chance with this answer."""
    with processed(CdnPolicyViolation("no", details={})):
        answer = part_sent(issued.token, 0, DATA)
    assert (answer.status, answer.headers["upload-offset"]) == (204, str(len(DATA)))
    assert offset_of(issued.token) is None


def test_a_part_that_another_request_writes_is_a_conflict(issued: Any) -> None:
    """Also where the lease of the other one has run out: its process may only be stopped."""
    part = PartFile.open(issued.file.pk)
    try:
        assert_error(sent("PUT", issued.token, DATA), 409, "conflict")
    finally:
        part.close()
    assert sent("PUT", issued.token, DATA).status == 202


def test_a_part_that_is_shorter_than_the_row_says_goes_on_from_its_end(issued: Any) -> None:
    """As after a restored backup."""
    part_sent(issued.token, 0, DATA[:1000])
    part = PartFile.open(issued.file.pk)
    part.cut(400)
    part.close()
    assert_error(part_sent(issued.token, 1000, DATA[1000:]), 409, "conflict")
    assert offset_of(issued.token) == 400
    assert part_sent(issued.token, 400, DATA[400:]).status == 204
    assert File.objects.get().sha256 == sha256(DATA).hexdigest()


def test_bytes_beyond_the_recorded_offset_are_written_again(issued: Any) -> None:
    """Bytes that a killed process had written were shown to no client."""
    part_sent(issued.token, 0, DATA[:1000])
    part = PartFile.open(issued.file.pk)
    part.cut(1000)
    part.write(b"y" * 5000)
    part.close()
    assert offset_of(issued.token) == 1000
    part_sent(issued.token, 1000, DATA[1000:])
    assert File.objects.get().sha256 == sha256(DATA).hexdigest()


def test_what_the_server_can_do(issued: Any) -> None:
    for token in (issued.token, "anything"):
        answer = sent("OPTIONS", token, Origin="https://other.example")
        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["tus-version"] == "1.0.0"
        assert answer.headers["tus-extension"] == "expiration"
        assert answer.headers["access-control-allow-origin"] == "*"
        assert "PATCH" in answer.headers["access-control-allow-methods"]
        assert "Upload-Offset" in answer.headers["access-control-allow-headers"]


def test_headers_of_a_status(issued: Any) -> None:
    answer = sent("HEAD", issued.token, Tus_Resumable="1.0.0")
    assert (answer.headers["upload-offset"], answer.headers["upload-length"]) == ("0", str(len(DATA)))
    assert (answer.headers["cache-control"], answer.headers["referrer-policy"]) == ("no-store", "no-referrer")
    assert answer.headers["tus-resumable"] == "1.0.0"


def test_a_method_may_be_named_by_a_header(issued: Any) -> None:
    options = {"X_HTTP_Method_Override": "PATCH", "Upload_Offset": "0", "Content_Type": PART}
    assert sent("POST", issued.token, DATA, **options).status == 204
    assert File.objects.get().sha256 == sha256(DATA).hexdigest()
