"""Copies, tags and ranges of a page's files at the edge: a real Caddy, requests byte by byte."""

from __future__ import annotations

import brotli
import pytest

from tests.pages.edge_site import DOMAIN, JS, OWN_404, Edge
from tests.pages.stores import TEXT


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("br", "br"), ("gzip", "gzip"), ("zstd", "zstd"), ("gzip, deflate, br, zstd", "br"),
        ("gzip;q=1, br;q=0", "gzip"),
        ("identity", None), ("deflate", None), ("*;q=0", None), ("br;q=0", None),
    ],
)  # fmt: skip
def test_copies_are_sent_as_the_client_accepts(edge: Edge, accepted: str, encoding: str | None) -> None:
    answer = edge.site("/app-C2xYz9aQ.js", Accept_Encoding=accepted)
    assert answer.headers.get("content-encoding") == encoding
    assert (answer.status, answer.headers["content-type"]) == (200, JS)
    assert "accept-encoding" in answer.headers["vary"].lower()
    assert (len(answer.body) < len(TEXT)) == (encoding is not None)
    if encoding == "br":
        assert brotli.decompress(answer.body) == TEXT


def test_a_retained_chunk_is_compressed_too(edge: Edge) -> None:
    answer = edge.site("/app-B1xYz9aQ.js", Accept_Encoding="br", Range="bytes=0-1", If_None_Match="*")
    assert (answer.status, brotli.decompress(answer.body)) == (200, TEXT + b"old")


def test_tags_answer_conditional_requests(edge: Edge) -> None:
    tags = {
        accepted: edge.site("/app-C2xYz9aQ.js", Accept_Encoding=accepted).headers["etag"]
        for accepted in ("br", "gzip", "x")
    }
    assert len(set(tags.values())) == 3
    for accepted, tag in tags.items():
        same = edge.site("/app-C2xYz9aQ.js", Accept_Encoding=accepted, If_None_Match=f'"other", {tag}')
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
        assert "last-modified" not in same.headers
    assert edge.site("/app-C2xYz9aQ.js", If_None_Match=tags["br"]).status == 200
    assert edge.site("/about", If_None_Match=edge.site("/about").headers["etag"]).status == 304
    assert edge.site("/app-C2xYz9aQ.js", If_Match='"other"').status == 412


def test_times_of_clients_do_not_count(edge: Edge) -> None:
    for name in ("If_Modified_Since", "If_Unmodified_Since"):
        for date in ("Fri, 01 Jan 2100 00:00:00 GMT", "Sat, 01 Jan 2000 00:00:00 GMT"):
            assert edge.site("/about", **{name: date}).status == 200


def test_ranges(edge: Edge) -> None:
    part = edge.site("/app-C2xYz9aQ.js", Range="bytes=5-9")
    assert (part.status, part.body) == (206, TEXT[5:10])
    assert part.headers["content-range"] == f"bytes 5-9/{len(TEXT)}"
    assert edge.site("/app-C2xYz9aQ.js", Range="bytes=999999-").status == 416
    other = edge.site("/app-C2xYz9aQ.js", Range="bytes=5-9", If_Range='"other"')
    assert (other.status, other.body) == (200, TEXT)
    assert edge.site("/gone", Range="bytes=0-1").body == OWN_404


def test_a_changed_byte_changes_the_tag_and_an_unchanged_file_keeps_it(edge: Edge) -> None:
    edge.deploy("tags", {"index.html": b"one", "same.css": b"same", "changing.css": b"aaa"})
    host = f"tags.{DOMAIN}"
    before = {name: edge.ask(host, f"/{name}").headers["etag"] for name in ("same.css", "changing.css")}
    edge.deploy("tags", {"index.html": b"two", "same.css": b"same", "changing.css": b"aab"})
    assert edge.ask(host, "/same.css", If_None_Match=before["same.css"]).status == 304
    changed = edge.ask(host, "/changing.css", If_None_Match=before["changing.css"])
    assert (changed.status, changed.body) == (200, b"aab")
    edge.store.release_publish("pg_tags", 1)
    assert edge.ask(host, "/changing.css").headers["etag"] == before["changing.css"]
