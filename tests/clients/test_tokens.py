"""Access tokens of the Python client: when they are issued, and what is sent with each request."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count

import httpx
import pytest

import microvm.sync.token_auth
from microvm import AccessTokens, Microvm, Retries
from microvm.errors import Forbidden, Unauthorized

FAST = Retries(attempts=3, first_wait=0.001)


class Service:
    """Issues tokens for `ttl` seconds, and refuses those in `revoked`."""

    def __init__(self) -> None:
        self.seen: list[httpx.Request] = []
        self.revoked: set[str] = set()
        self._numbers = count(1)

    @property
    def issued(self) -> int:
        return len([request for request in self.seen if request.url.path == "/tokens"])

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        if request.url.path == "/tokens":
            return httpx.Response(201, json={"token": f"t{next(self._numbers)}", "ttl": 900})
        if request.headers["Authorization"].removeprefix("Bearer ") in self.revoked:
            return httpx.Response(401, json={"error": "Unauthorized", "code": "unauthorized", "message": "Ended."})
        return httpx.Response(200, json={"workspace": {"id": "ws_1"}})


def client_of(service: Service, tokens: AccessTokens | None = None) -> Microvm:
    http = httpx.Client(base_url="http://test", transport=httpx.MockTransport(service.answer))
    access = tokens or AccessTokens()
    return Microvm("http://test", client_id="i", client_secret="s", access_tokens=access, retries=FAST, http=http)


def test_the_secret_is_sent_only_for_a_token() -> None:
    service = Service()
    with client_of(service, AccessTokens(scope="namespace", namespace="web", ttl=300)) as client:
        client.workspaces.get("one")
        client.workspaces.get("one")
    assert [request.url.path for request in service.seen] == ["/tokens", "/workspace/one", "/workspace/one"]
    assert ["X-Client-Secret" in request.headers for request in service.seen] == [True, False, False]
    assert service.seen[0].read() == b'{"scope":"namespace","ttl":300,"namespace":"web"}'


def test_a_token_is_renewed_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    service, now = Service(), [1000.0]
    monkeypatch.setattr(microvm.sync.token_auth, "monotonic", lambda: now[0])
    with client_of(service) as client:
        for moment, issued in ((1000.0, 1), (1719.0, 1), (1721.0, 2), (2439.0, 2), (2442.0, 3)):
            now[0] = moment
            client.workspaces.get("one")
            assert service.issued == issued, moment


def test_a_revoked_token_is_replaced_once() -> None:
    service = Service()
    with client_of(service) as client:
        client.workspaces.get("one")
        service.revoked = {"t1"}
        assert client.workspaces.get("one")["id"] == "ws_1"
        service.revoked = {"t2", "t3"}
        with pytest.raises(Unauthorized):
            client.workspaces.get("one")
    assert service.issued == 3


def test_requests_at_once_have_one_token_issued() -> None:
    service = Service()
    with client_of(service) as client, ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(client.workspaces.get, ["one"] * 32))) == 32
    assert service.issued == 1


def test_a_refused_token_is_an_error_with_its_class() -> None:
    def refused(request: httpx.Request) -> httpx.Response:
        return httpx.Response(403, json={"error": "Forbidden", "code": "forbidden", "message": "Another level."})

    http = httpx.Client(base_url="http://test", transport=httpx.MockTransport(refused))
    with (
        Microvm("", client_id="i", client_secret="s", access_tokens=AccessTokens(), http=http) as client,
        pytest.raises(Forbidden, match="Another level"),
    ):
        client.workspaces.get("one")


def test_a_client_has_one_kind_of_credential() -> None:
    for given in ({}, {"client_id": "i"}, {"client_id": "i", "client_secret": "s", "token": "t"}):
        with pytest.raises(ValueError, match="client_id and client_secret, or a token"):
            Microvm("http://test", **given)


def test_a_token_is_asked_for_again_after_a_lost_answer() -> None:
    service, lost = Service(), [httpx.ReadError("lost")]

    def answer(request: httpx.Request) -> httpx.Response:
        if lost:
            raise lost.pop()
        return service.answer(request)

    http = httpx.Client(base_url="http://test", transport=httpx.MockTransport(answer))
    with Microvm("", client_id="i", client_secret="s", access_tokens=AccessTokens(), retries=FAST, http=http) as client:
        assert client.workspaces.get("one")["id"] == "ws_1"
    assert service.issued == 1
