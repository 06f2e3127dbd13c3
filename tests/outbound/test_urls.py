"""How URLs are read: what is refused, and what is sent for what is not."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outbound.errors import OutboundError
from outbound.http import require_public_url
from outbound.targets import Targets, required_target
from outbound.urls import target_of
from tests.outbound.outside import CORPUS

URLS = [(group, url) for group, urls in CORPUS["urls"].items() for url in urls]
POLICY = Targets.of([], ["10.200.0.0/20"])


@pytest.mark.parametrize(("group", "url"), URLS, ids=[f"{group} {place}" for place, (group, _) in enumerate(URLS)])
def test_the_corpus_is_refused_without_looking_a_name_up(group: str, url: str) -> None:
    with pytest.raises(OutboundError) as caught:
        required_target(url.replace("{port}", "8443"), POLICY)
    assert caught.value.kind == "refused_target"
    assert caught.value.sentence.isprintable()


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "header"),
    [
        ("https://example.com", "example.com", 443, "/", "example.com"),
        ("HTTPS://Example.COM/A?b=C", "example.com", 443, "/A?b=C", "example.com"),
        ("https://example.com?x=1", "example.com", 443, "/?x=1", "example.com"),
        ("https://example.com:8443/a@b:c//d", "example.com", 8443, "/a@b:c//d", "example.com:8443"),
        ("https://example.com:443/", "example.com", 443, "/", "example.com"),
        ("https://bücher.example/", "xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
        ("https://BÜCHER.example/", "xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443, "/", "xn--bcher-kva.example"),
        ("https://my_hooks.example.com/", "my_hooks.example.com", 443, "/", "my_hooks.example.com"),
        ("https://8.8.8.8/", "8.8.8.8", 443, "/", "8.8.8.8"),
        ("https://[2606:4700:4700:0::1111]:8443/", "2606:4700:4700::1111", 8443, "/", "[2606:4700:4700::1111]:8443"),
        ("https://example.com/%C3%BC?q=%20", "example.com", 443, "/%C3%BC?q=%20", "example.com"),
    ],
)
def test_what_is_sent_for_a_url(url: str, host: str, port: int, path: str, header: str) -> None:
    target = required_target(url, POLICY)
    assert (target.host, target.port, target.path, target.host_header) == (host, port, path, header)


@given(st.one_of(st.text(), st.text().map(lambda text: f"https://{text}"), st.text().map(lambda t: f"https://a.b/{t}")))
@example("https://a.b:443/\n")
@example("https://İ.com/")
def test_any_text_is_refused_or_leaves_nothing_that_ends_a_line(text: str) -> None:
    try:
        target = target_of(text)
    except OutboundError:
        return
    assert re.fullmatch(r"[a-z0-9._:\[\]-]+", target.host_header)
    assert re.fullmatch(r"/[!-~]*", target.path)
    assert 0 < target.port < 65536


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("https://a:b@example.com/", "user name"),
        ("https:///x", "host"),
        ("https://example.com:0/", "port"),
        ("https://example.com/#x", "fragment"),
        ("http://example.com/", "https"),
        ("https://example.com/" + "a" * 2048, "2048"),
        ("https://127.1/", "usual form"),
        # Another character that some programs read as a dot.
        ("https://example。com/", "not valid"),
    ],
)
def test_the_sentence_says_what_is_wrong_with_the_url(url: str, word: str) -> None:
    with pytest.raises(OutboundError) as caught:
        required_target(url, POLICY)
    assert word in caught.value.sentence


def test_a_listed_place_may_be_plain_http_and_private() -> None:
    policy = Targets.of(["127.0.0.1:9000", "Receiver:80", "[::1]:9000"])
    for url in ("http://127.0.0.1:9000/x", "https://127.0.0.1:9000/", "http://receiver/", "http://[::1]:9000/"):
        required_target(url, policy)
    for url in ("http://127.0.0.1:9001/", "http://127.1:9000/", "https://receiver/", "http://[::ffff:127.0.0.1]:9000/"):
        with pytest.raises(OutboundError):
            required_target(url, policy)


@pytest.mark.parametrize("listed", ["127.0.0.1", "http://a:80", "a:0", "a:b", "a@b:80", "127.1:80", ""])
def test_a_place_that_is_not_host_and_port_cannot_be_listed(listed: str) -> None:
    with pytest.raises(OutboundError):
        Targets.of([listed])


def test_a_name_without_an_answer_can_be_registered() -> None:
    require_public_url("https://hooks.example.com/", POLICY)
