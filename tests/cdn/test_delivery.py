"""Files at the CDN's host: a real Caddy, rows and links of the tests, requests byte by byte."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.db import transaction

from accounts.services import account_switch
from cdn.delivery import file_url, variant_url, withdraw_links
from cdn.delivery.links import list_links
from cdn.models import File
from cdn.services.storage_check import orphans_remove
from cdn.states import FileStatus
from common.errors import QuotaExceeded
from credits.models import Service
from tests.callers import Caller
from tests.cdn.edge_files import HOST, CdnEdge, files_clear, open_cdn_edge, stored_file, stored_variant

pytestmark = pytest.mark.django_db(transaction=True)
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 80
SCRIPT = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
OWN = {"date", "x-request-id"}  # of each answer
POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"


@pytest.fixture(scope="module")
def open_edge() -> Iterator[CdnEdge]:
    files_clear()
    with open_cdn_edge() as made:
        yield made
    files_clear()


@pytest.fixture
def edge(open_edge: CdnEdge) -> CdnEdge:
    open_edge.api.asked.clear()
    return open_edge


def test_the_first_request_makes_the_link_and_later_ones_ask_no_process(edge: CdnEdge, api: Caller) -> None:
    file = stored_file(api.account, PICTURE, "image/png")
    answers = [edge.file(file_url(file)) for _ in range(3)]
    assert [(answer.status, answer.body) for answer in answers] == [(200, PICTURE)] * 3
    assert len(edge.api.asked) == 1
    first, last = ({key: value for key, value in answers[at].headers.items() if key not in OWN} for at in (0, 2))
    assert first == last
    file.refresh_from_db()
    assert file.delivered


@pytest.mark.parametrize("sent", ["mine-1", '"\\"', "{http.request.host}", "x" * 128])
def test_the_callers_id_of_the_request_is_that_of_the_response(edge: CdnEdge, api: Caller, sent: str) -> None:
    file = stored_file(api.account, PICTURE, "image/png")
    answers = [edge.file(file_url(file), method, X_Request_ID=sent) for method in ("GET", "GET", "HEAD", "OPTIONS")]
    assert [(each.status, each.headers["x-request-id"]) for each in answers] == [(200, sent)] * 3 + [(204, sent)]
    refused = [edge.file(file_url(file), "POST", X_Request_ID=sent), edge.get("/f/none", X_Request_ID=sent)]
    assert [each.status for each in refused] == [405, 404]
    for each in refused:
        assert each.headers["x-request-id"] == json.loads(each.body)["request_id"] == sent
    own = edge.file(file_url(file), X_Request_ID="x" * 129).headers
    assert len(own["x-request-id"]) == 36
    assert "X-Request-ID" in own["access-control-expose-headers"]


@pytest.mark.parametrize("host", [HOST.upper(), f"{HOST}.", "CDN.localhost.:80"])
def test_the_host_counts_in_any_case_and_with_a_dot_at_its_end(edge: CdnEdge, api: Caller, host: str) -> None:
    path = urlsplit(file_url(stored_file(api.account, PICTURE, "image/png"))).path
    assert [edge.get(path, host=host).body for _ in range(2)] == [PICTURE] * 2


def test_headers_of_a_picture(edge: CdnEdge, api: Caller) -> None:
    answer = edge.file(file_url(stored_file(api.account, PICTURE, "image/png")))
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert answer.headers["accept-ranges"] == "bytes"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.headers["etag"][0] == answer.headers["etag"][-1] == '"'
    for absent in ("last-modified", "content-disposition", "content-security-policy", "set-cookie"):
        assert absent not in answer.headers, absent


@pytest.mark.parametrize(
    "content_type",
    ["image/svg+xml", "text/html", "text/xml", "application/pdf", "application/octet-stream", "x/never-seen"],
)
def test_what_could_run_scripts_is_saved_in_a_sandbox(edge: CdnEdge, api: Caller, content_type: str) -> None:
    answer = edge.file(file_url(stored_file(api.account, SCRIPT, content_type)))
    wanted = "application/octet-stream" if content_type == "x/never-seen" else content_type
    assert (answer.status, answer.body) == (200, SCRIPT)
    assert answer.headers["content-type"] == wanted
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["content-security-policy"] == POLICY


@pytest.mark.parametrize("content_type", ["text/plain", "text/html", "text/csv", "text/xml"])
def test_text_that_is_utf8_says_so(edge: CdnEdge, api: Caller, content_type: str) -> None:
    text = "Gr\u00fc\u00dfe".encode()
    for is_utf8, charset in ((True, "; charset=utf-8"), (False, "")):
        file = stored_file(api.account, text, content_type, is_utf8=is_utf8)
        for answer in (edge.file(file_url(file)), edge.file(file_url(file)), edge.file(file_url(file), "HEAD")):
            assert (answer.status, answer.headers["content-type"]) == (200, f"{content_type}{charset}")
        # Of the two addresses one is that of the file.
        path, _, extension = file_url(file).rpartition(".")
        other = f"{path.removesuffix('.utf8')}.{extension}" if is_utf8 else f"{path}.utf8.{extension}"
        assert edge.file(other).status == 404


def test_variants_have_addresses_of_their_own(edge: CdnEdge, api: Caller) -> None:
    file = stored_file(api.account, PICTURE, "image/png")
    made = [stored_variant(file, name, name.encode() * 9) for name in ("small", "a-b_C")]
    for variant in made:
        answer = edge.file(variant_url(variant))
        assert (answer.status, answer.body) == (200, variant.name.encode() * 9)
        assert answer.headers["content-type"] == "image/webp"
    assert edge.file(variant_url(made[0]).replace("/small-", "/other-")).status == 404
    assert edge.file(variant_url(made[0]).replace("/small-", "/")).status == 404


def test_ranges_and_conditions(edge: CdnEdge, api: Caller) -> None:
    url = file_url(stored_file(api.account, PICTURE, "image/png"))
    tag = edge.file(url).headers["etag"]
    part = edge.file(url, Range="bytes=5-9")
    assert (part.status, part.body) == (206, PICTURE[5:10])
    assert part.headers["content-range"] == f"bytes 5-9/{len(PICTURE)}"
    assert edge.file(url, Range="bytes=-3").body == PICTURE[-3:]
    assert edge.file(url, Range="bytes=99999-").status == 416
    assert edge.file(url, If_None_Match=tag).status == 304
    assert edge.file(url, If_None_Match='"other"').status == 200
    assert edge.file(url, Range="bytes=0-0", If_Range=tag).status == 206
    assert edge.file(url, Range="bytes=0-0", If_Range='"other"').status == 200
    assert edge.file(url, If_Match='"other"').status == 412
    assert edge.file(url, If_Modified_Since="Wed, 01 Jan 2031 00:00:00 GMT").status == 200
    head = edge.file(url, "HEAD")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(PICTURE)))


@pytest.mark.parametrize("delivered", [False, True])
@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"If_Match": '"other"'}, 412, "precondition_failed"),
        ({"Range": "bytes=99999-"}, 416, "range_not_satisfiable"),
        ({"Range": "bytes=5-1"}, 416, "range_not_satisfiable"),
        ({"Range": "lines=1-2"}, 416, "range_not_satisfiable"),
    ],
)
def test_a_refused_condition_is_kept_by_no_cache(
    edge: CdnEdge, api: Caller, delivered: bool, headers: dict[str, str], status: int, code: str
) -> None:
    """A visitor's condition must not become what the address leads to."""
    url = file_url(stored_file(api.account, PICTURE, "image/png"))
    if delivered:
        edge.file(url)
    answer = edge.file(url, **headers)
    assert (answer.status, json.loads(answer.body)["code"]) == (status, code)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "application/json"
    assert "etag" not in answer.headers
    assert edge.file(url, "HEAD", **headers).headers["cache-control"] == "no-store"


def test_equal_contents_have_equal_tags_and_others_differ(edge: CdnEdge, api: Caller) -> None:
    same = [edge.file(file_url(stored_file(api.account, PICTURE, "image/png"))).headers["etag"] for _ in range(2)]
    other = edge.file(file_url(stored_file(api.account, PICTURE[:-1] + b"x", "image/png"))).headers["etag"]
    assert same[0] == same[1] != other


@pytest.mark.parametrize("delivered", [False, True])
def test_a_withdrawn_file_is_gone_by_the_next_request(edge: CdnEdge, api: Caller, delivered: bool) -> None:
    file = stored_file(api.account, PICTURE, "image/png")
    variant = stored_variant(file, "small", b"small")
    urls = [file_url(file), variant_url(variant)]
    if delivered:
        assert {edge.file(url).status for url in urls} == {200}
    with transaction.atomic():
        File.objects.filter(pk=file.pk).update(status=FileStatus.TRASHED)
        withdraw_links(file)
    for url in urls:
        answer = edge.file(url)
        assert (answer.status, answer.headers["cache-control"]) == (404, "no-store")
    assert file.pk not in list(list_links())
    File.objects.filter(pk=file.pk).update(status=FileStatus.ACTIVE)
    assert {edge.file(url).status for url in urls} == {200}


@pytest.mark.parametrize("delivered", [False, True])
def test_files_of_an_account_that_is_not_active_are_gone_by_the_next_request(
    edge: CdnEdge, api: Caller, stranger: Caller, delivered: bool
) -> None:
    file, beside = (stored_file(caller.account, PICTURE, "image/png") for caller in (api, stranger))
    url, others = file_url(file), file_url(beside)
    if delivered:
        assert (edge.file(url).status, edge.file(others).status) == (200, 200)
    account_switch(api.account, is_active=False)
    answer = edge.file(url)
    assert (answer.status, answer.headers["cache-control"]) == (404, "no-store")
    assert file.pk not in list(list_links())
    assert edge.file(others).status == 200
    account_switch(api.account, is_active=True)
    assert edge.file(url).status == 200


def test_links_that_a_process_has_left_of_an_inactive_account_are_removed(edge: CdnEdge, api: Caller) -> None:
    """It died after the commit that deactivated the account."""
    file = stored_file(api.account, PICTURE, "image/png")
    assert edge.file(file_url(file)).status == 200
    type(api.account).objects.update(is_active=False)
    orphans_remove()
    assert list(list_links()) == []
    assert edge.file(file_url(file)).status == 404


def test_what_is_gone_is_as_what_never_was(edge: CdnEdge, api: Caller, stranger: Caller) -> None:
    """Whichever account had it, and whatever an address says of it."""
    files = [stored_file(caller.account, PICTURE, "image/png") for caller in (api, stranger, api)]
    urls = [file_url(file) for file in files]
    assert edge.file(urls[0]).status == 200
    for file in files[:2]:
        with transaction.atomic():
            File.objects.filter(pk=file.pk).update(status=FileStatus.TRASHED)
            withdraw_links(file)
    wrong = urls[2].replace(files[2].sha256[:32], "0" * 32)
    absent = urls[2].replace(files[2].pk, "file_2222222222222222")
    answers = [edge.file(url) for url in (absent, wrong, *urls[:2])]
    seen = []
    for answer in answers:
        headers = {name: value for name, value in answer.headers.items() if name not in OWN}
        body = answer.body.replace(answer.headers.get("x-request-id", "-").encode(), b"REQUEST")
        seen.append((answer.status, headers, body))
    assert all(each == seen[0] for each in seen)
    assert seen[0][0] == 404


def test_without_credits_only_what_was_delivered_is_delivered(edge: CdnEdge, api: Caller) -> None:
    old, new = (stored_file(api.account, data, "image/png") for data in (PICTURE, PICTURE + b"2"))
    assert edge.file(file_url(old)).status == 200
    withdraw_links(old)
    with patch("cdn.services.deliveries.require_credits", side_effect=QuotaExceeded()) as asked:
        assert edge.file(file_url(old)).status == 200
        answer = edge.file(file_url(new))
        assert asked.call_args.args[1] == Service.CDN
    assert (answer.status, answer.headers["cache-control"]) == (402, "no-store")
    assert b'"code": "quota_exceeded"' in answer.body
    assert edge.file(file_url(new)).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "PROPFIND"])
def test_files_are_read_only(edge: CdnEdge, api: Caller, method: str) -> None:
    url = file_url(stored_file(api.account, PICTURE, "image/png"))
    answer = edge.file(url, method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert b'"code": "method_not_allowed"' in answer.body


def test_pages_of_other_origins_may_read_files(edge: CdnEdge, api: Caller) -> None:
    url = file_url(stored_file(api.account, PICTURE, "image/png"))
    asked = edge.file(url, "OPTIONS", Origin="https://other.example", Access_Control_Request_Method="GET")
    assert (asked.status, asked.headers["access-control-allow-origin"]) == (204, "*")
    assert "Range" in asked.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in edge.file(url).headers


def test_an_error_is_in_the_form_of_the_api(edge: CdnEdge) -> None:
    answer = edge.get("/f/file_2222222222222222/" + "0" * 32 + ".png")
    assert (answer.status, answer.headers["content-type"]) == (404, "application/json")
    assert b'"code": "not_found"' in answer.body
    assert "content-disposition" not in answer.headers


def test_the_name_of_a_file_in_the_store_is_its_hash(edge: CdnEdge, api: Caller) -> None:
    file = stored_file(api.account, PICTURE, "image/png")
    names = [path.name for path in (Path(settings.STATE) / "cdn/store/files" / file.pk).iterdir()]
    assert names == [sha256(PICTURE).hexdigest()]


def test_live_files_are_delivered_while_the_api_is_away(edge: CdnEdge, api: Caller) -> None:
    old, new = (stored_file(api.account, data, "image/png") for data in (PICTURE, PICTURE + b"2"))
    assert edge.file(file_url(old)).status == 200
    path = edge.instance.run_dir / "api.sock"
    away = path.rename(path.with_name("away.sock"))
    try:
        assert edge.file(file_url(old)).body == PICTURE
        answer = edge.file(file_url(new))
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.headers["cache-control"] == "no-store"
    finally:
        away.rename(path)
