"""Delivery from a store that speaks S3: through a real Caddy, the headers are those of files on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest
from django.conf import settings

from cdn.delivery import file_url, variant_url
from cdn.models import File
from cdn.states import FileStatus
from cdn.storage.s3 import s3_store
from common.errors import QuotaExceeded
from config.env import Env
from tests.callers import Caller
from tests.cdn.edge_files import CdnEdge, files_clear, open_cdn_edge, stored_file, stored_variant
from tests.cdn.s3_server import Bucket, s3_server, s3_settings

pytestmark = pytest.mark.django_db(transaction=True)
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 80
# Made by the file server alone, of time and size of a file.
OWN_HEADERS = {"date", "etag", "server", "via", "vary", "x-request-id"}


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    with s3_server() as made:
        yield made


@pytest.fixture(scope="module")
def from_disk() -> Iterator[CdnEdge]:
    files_clear()
    with open_cdn_edge() as made:
        yield made
    files_clear()


@pytest.fixture(scope="module")
def open_edge(bucket: Bucket) -> Iterator[CdnEdge]:
    with open_cdn_edge(s3_settings(bucket)) as made:
        yield made


@pytest.fixture
def edge(open_edge: CdnEdge, bucket: Bucket) -> Iterator[CdnEdge]:
    bucket.clear()
    s3_store.cache_clear()
    with patch.object(settings, "ENV", Env.from_environment(settings.ENV.variables() | s3_settings(bucket))):
        yield open_edge
    s3_store.cache_clear()


@pytest.mark.parametrize("content_type", ["image/png", "image/svg+xml", "application/pdf", "video/mp4"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("wanted", [None, "bytes=5-9", "bytes=-3"])
def test_status_headers_and_body_are_those_of_the_disk(
    edge: CdnEdge, from_disk: CdnEdge, api: Caller, content_type: str, method: str, wanted: str | None
) -> None:
    headers = {"Range": wanted} if wanted else {}
    file = stored_file(api.account, PICTURE, content_type)
    answer = edge.file(file_url(file), method, **headers)
    on_disk = Env.from_environment(settings.ENV.variables() | {"PLATFORM_CDN_S3_BUCKET": ""})
    with patch.object(settings, "ENV", on_disk):
        same = stored_file(api.account, PICTURE, content_type)
        beside = from_disk.file(file_url(same), method, **headers)
    assert (answer.status, answer.body) == (beside.status, beside.body)
    found, expected = (
        {name: value for name, value in each.headers.items() if name not in OWN_HEADERS} for each in (answer, beside)
    )
    assert found == expected
    assert answer.headers["etag"] == f'"{file.sha256[:32]}"'


def test_the_objects_own_headers_are_not_shown(edge: CdnEdge, api: Caller) -> None:
    headers = edge.file(file_url(stored_file(api.account, PICTURE, "image/png"))).headers
    assert not [name for name in headers if name.startswith(("x-amz", "x-cdn"))]
    assert "last-modified" not in headers
    assert (headers["content-type"], headers["cache-control"]) == ("image/png", "public, max-age=31536000, immutable")


def test_conditions_are_decided_by_the_hash(edge: CdnEdge, bucket: Bucket, api: Caller) -> None:
    url = file_url(stored_file(api.account, PICTURE, "image/png"))
    tag = edge.file(url).headers["etag"]
    asked = bucket.requests["get"]
    known = edge.file(url, If_None_Match=tag)
    assert (known.status, known.body, known.headers["etag"]) == (304, b"", tag)
    assert edge.file(url, If_None_Match=f'"x", W/{tag}').status == 304
    assert edge.file(url, If_Match='"other"').status == 412
    assert bucket.requests["get"] == asked
    assert edge.file(url, If_None_Match='"other"').status == 200
    assert edge.file(url, Range="bytes=0-0", If_Range=tag).status == 206
    assert edge.file(url, Range="bytes=0-0", If_Range='"other"').status == 200
    assert edge.file(url, Range="bytes=99999-").status == 416


def test_variants_are_delivered(edge: CdnEdge, api: Caller) -> None:
    file = stored_file(api.account, PICTURE, "image/png")
    answer = edge.file(variant_url(stored_variant(file, "small", b"small")))
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, b"small", "image/webp")


def test_a_withdrawn_file_is_gone_by_the_next_request(edge: CdnEdge, api: Caller) -> None:
    file = stored_file(api.account, PICTURE, "image/png")
    assert edge.file(file_url(file)).status == 200
    File.objects.filter(pk=file.pk).update(status=FileStatus.TRASHED)
    answer = edge.file(file_url(file))
    assert (answer.status, answer.headers["cache-control"]) == (404, "no-store")


def test_without_credits_only_what_was_delivered_is_delivered(edge: CdnEdge, api: Caller) -> None:
    old, new = (stored_file(api.account, data, "image/png") for data in (PICTURE, PICTURE + b"2"))
    assert edge.file(file_url(old)).status == 200
    with patch("cdn.services.deliveries.require_credits", side_effect=QuotaExceeded()):
        assert edge.file(file_url(old)).status == 200
        assert edge.file(file_url(new)).status == 402


def test_a_store_without_the_object_or_without_answers_is_no_file(edge: CdnEdge, bucket: Bucket, api: Caller) -> None:
    file = stored_file(api.account, PICTURE, "image/svg+xml")
    bucket.fail["get"] = 1
    answer = edge.file(file_url(file))
    assert (answer.status, answer.headers["retry-after"], answer.headers["cache-control"]) == (503, "1", "no-store")
    bucket.objects.clear()
    answer = edge.file(file_url(file))
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    assert "content-disposition" not in answer.headers
    assert b"NoSuchKey" not in answer.body


@pytest.mark.parametrize("status", [201, 203, 302, 402, 407, 410, 412, 423, 431, 451, 503])
def test_only_the_object_is_delivered_and_kept_by_caches(
    edge: CdnEdge, bucket: Bucket, api: Caller, status: int
) -> None:
    """A store that answers with anything else."""
    url = file_url(stored_file(api.account, PICTURE, "image/png"))
    bucket.lie = (status, {"Location": "https://other.example/", "Cache-Control": "public, max-age=99"})
    answer = edge.file(url)
    assert (answer.status, answer.headers["cache-control"]) == (503, "no-store")
    assert "location" not in answer.headers
    assert b"Lie" not in answer.body


def test_credentials_of_visitors_do_not_reach_the_store(edge: CdnEdge, bucket: Bucket, api: Caller) -> None:
    url = file_url(stored_file(api.account, PICTURE, "image/png"))
    sent = {"Authorization": "Bearer x", "Cookie": "sessionid=x", "X_Amz_Date": "x", "X_Amz_Security_Token": "x"}
    assert edge.file(url, **sent).body == PICTURE
    assert edge.file(url + "?X-Amz-Signature=0&response-content-type=text/html").headers["content-type"] == "image/png"
