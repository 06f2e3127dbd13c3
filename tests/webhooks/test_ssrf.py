"""Addresses that a hostile tenant names (`ssrf_corpus.json`): at registration, at sending, as the target of a redirect.

A listener on every address of this host counts connections: there are none. `{port}` in the corpus is its port.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from outbound.http import Answer, OutboundError, Targets, post, require_public_url
from tests.outbound.outside import CORPUS, OK, Authority, Outside, Receiver, answering, outside_world

GROUPS = sorted(CORPUS["urls"])
POLICY = Targets.of([], ["10.200.0.0/20"])
HOST = "hooks.example.com"


@pytest.fixture
def outside(no_name_server: None) -> Iterator[Outside]:
    with outside_world() as world:
        yield world


@pytest.fixture
def authority(tmp_path: Path) -> Iterator[Authority]:
    made = Authority(tmp_path)
    with made.trusted():
        yield made


@pytest.fixture
def inside() -> Iterator[Receiver]:
    """What must not be reached."""
    with Receiver(answering(OK)) as there:
        yield there
        assert there.connections == 0


def urls_of(group: str, port: int) -> list[str]:
    return [url.replace("{port}", str(port)) for url in CORPUS["urls"][group]]


def sent(url: str, policy: Targets = POLICY) -> Answer:
    return post(url, body=b"{}", headers={}, deadline_seconds=5, policy=policy)


def refusal_of(url: str) -> str:
    with pytest.raises(OutboundError) as caught:
        sent(url)
    return caught.value.kind


@pytest.mark.parametrize("group", GROUPS)
def test_no_form_of_an_inner_address_is_registered_or_sent_to(outside: Outside, inside: Receiver, group: str) -> None:
    for url in urls_of(group, inside.port):
        with pytest.raises(OutboundError) as caught:
            require_public_url(url, POLICY)
        assert caught.value.kind == "refused_target", url
        assert refusal_of(url) == "refused_target", url
    assert (outside.dialled, outside.server.questions) == ([], [])


@pytest.mark.parametrize("group", GROUPS)
def test_no_form_of_an_inner_address_is_redirected_to(inside: Receiver, group: str) -> None:
    """The receivers that redirect are listed, so that nothing but the redirect is refused."""
    for url in urls_of(group, inside.port):
        place = url.encode("utf-8", "replace").replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"")
        raw = b"HTTP/1.1 307 Temporary Redirect\r\nLocation: " + place + b"\r\nContent-Length: 0\r\n\r\n"
        with Receiver(answering(raw)) as there:
            answer = sent(f"http://127.0.0.1:{there.port}/", Targets.of([f"127.0.0.1:{there.port}"]))
        assert (answer.status, there.connections) == (307, 1), url


@pytest.mark.parametrize("case", sorted(CORPUS["names"]))
def test_no_name_leads_to_an_inner_address(outside: Outside, inside: Receiver, case: str) -> None:
    outside.names[HOST] = CORPUS["names"][case]
    url = f"https://{HOST}:{inside.port}/"
    assert refusal_of(url) in {"refused_target", "name"}
    assert outside.dialled == []
    if case != "a number of addresses":  # too many to be an answer
        with pytest.raises(OutboundError):
            require_public_url(url, POLICY)


@pytest.mark.parametrize("inner", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.7", "64:ff9b::7f00:1"])
def test_a_name_server_that_answers_differently_the_second_time(
    outside: Outside, inside: Receiver, authority: Authority, inner: str
) -> None:
    """What was public at registration is checked again by each request, and what a request checked is what it uses."""
    with Receiver(answering(OK), tls=authority.server(HOST)) as there:
        outside.internet["8.8.8.8"] = there.port
        outside.names[HOST] = [["8.8.8.8"], [inner]]
        url = f"https://{HOST}:{inside.port}/"
        require_public_url(url, POLICY)
        assert refusal_of(url) == "refused_target"

        outside.server.forget_questions()
        assert sent(url).status == 200
        assert refusal_of(url) == "refused_target"
    assert outside.dialled == ["8.8.8.8"]


def test_the_listener_is_found_by_a_guard_that_permits_everything(
    outside: Outside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the count above is 0 says something only if it would not be without the guard."""
    monkeypatch.setattr("outbound.http.require_public", lambda *_: None)
    outside.names[HOST] = [["127.0.0.1"]]
    with Receiver(lambda _: None) as there:
        refusal_of(f"https://{HOST}:{there.port}/")
    assert there.connections == 1
