"""Guessing through the real edge and api: many at once, each address of its own."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from supervise.files import read_env_file
from tests.vm.client import Api
from tests.vm.instances import TestInstance

AT_ONCE = 24


def caller(served: TestInstance, address: str) -> httpx.Client:
    """A client that calls from this loopback address."""
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=served.settings.base_url, transport=transport, timeout=120)


def logged_in(client: httpx.Client, name: str, password: str) -> httpx.Response:
    page = client.get("/admin/login/").text
    token = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page)
    assert token
    fields = {"csrfmiddlewaretoken": token[1], "username": name, "password": password}
    return client.post("/admin/login/", data=fields, headers={"Referer": str(client.base_url)})


def test_of_many_logins_at_once_the_limit_is_checked_and_the_rest_is_refused(served: TestInstance, client: Api) -> None:
    known = read_env_file(served.instance.credentials_file)
    staff = caller(served, "127.0.0.9")
    assert logged_in(staff, known["ADMIN_USER"], known["ADMIN_PASSWORD"]).status_code == 302

    def guess(number: int) -> httpx.Response:
        with caller(served, "127.0.0.2") as one:
            return logged_in(one, known["ADMIN_USER"], f"guess-{number}")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        guesses = pool.map(guess, range(AT_ONCE))
        beside = [client.http.get("/workspace").status_code for _ in range(20)]
        answers = list(guesses)
    assert set(beside) == {200}
    found = Counter(answer.status_code for answer in answers)
    assert set(found) <= {200, 429}
    assert 1 <= found[200] <= served.settings.login_attempts
    # Refused as one too many, or as there were too many at that moment.
    for answer in (answer for answer in answers if answer.status_code == 429):
        assert int(answer.headers["Retry-After"]) >= 1
        assert re.search(r"Try again in (\d+|a few) seconds", answer.text)
    for number in range(served.settings.login_attempts):
        last = guess(number)
    assert last.status_code == 429
    assert "Too many attempts" in last.text
    # Another address has its own count, and the log has the refused one once for each process.
    with caller(served, "127.0.0.4") as other:
        assert logged_in(other, known["ADMIN_USER"], known["ADMIN_PASSWORD"]).status_code == 302
    log = (served.instance.log_dir / "api.log").read_text()
    assert 1 <= log.count("login:source:127.0.0.2") <= served.settings.api_workers
    assert "guess-" not in log


def test_wrong_client_secrets_are_401_up_to_the_limit_and_429_beyond_it(served: TestInstance, client: Api) -> None:
    limit = served.settings.secret_failures
    with caller(served, "127.0.0.3") as one:
        statuses = []
        for number in range(limit + 50):
            headers = {"X-Client-ID": f"cli_{number}", "X-Client-Secret": "guess"}
            refused = one.get("/workspace", headers=headers)
            statuses.append(refused.status_code)
        assert statuses == [401] * limit + [429] * 50
        assert refused.json()["code"] == "rate_limited"
        assert int(refused.headers["Retry-After"]) >= 1
        # A client that shares the address was never seen there before.
        names = ("X-Client-ID", "X-Client-Secret")
        assert one.get("/workspace", headers={name: client.http.headers[name] for name in names}).status_code == 200


@pytest.fixture(scope="module")
def sandbox(client: Api) -> Iterator[dict[str, Any]]:
    made = client.call("POST", "/sandbox", 201, json={"name": "Guessed", "image": "localhost/tiny:1"})
    yield made
    client.call("DELETE", f"/sandbox/{made['sandbox']['id']}")


# By the place of the kind: a method, a path, the status of a wrong one. `{}`: what is guessed.
KINDS = {
    "access token": ("GET", "/workspace", 401),
    "access token for streams": ("GET", "/workspace/{workspace}/stats/stream", 401),
    "sandbox token": ("POST", "/s/{sandbox}/files/list", 401),
    "socket of a sandbox": ("GET", "/s/{sandbox}/ws?token={guess}", 401),
    "API key": ("POST", "/v1/blurs/generate", 401),
    "send token": ("POST", "/notifications/send", 401),
    "upload address": ("HEAD", "/cdn/uploads/{guess}", 404),
    "upload token": ("POST", "/cdn/api", 401),
    "token of metrics": ("GET", "/metrics", 401),
}
UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip


@pytest.mark.parametrize("kind", list(KINDS))
def test_wrong_tokens_of_every_kind_are_counted_by_address(
    served: TestInstance, client: Api, box: str, sandbox: dict[str, Any], kind: str
) -> None:
    limit, (method, path, wrong) = served.settings.secret_failures, KINDS[kind]
    with caller(served, f"127.0.1.{list(KINDS).index(kind) + 1}") as one:

        def guess(number: int) -> httpx.Response:
            at = path.format(guess=f"guess-{number}", workspace=box, sandbox=sandbox["sandbox"]["id"])
            headers = {"Authorization": f"Bearer guess-{number}"} | (UPGRADE if "/ws?" in at else {})
            return one.request(method, at, headers=headers)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(guess, range(limit + 8)))
        assert Counter(answer.status_code for answer in answers) == {wrong: limit, 429: 8}
        for answer in answers:
            assert (int(answer.headers.get("Retry-After", 0)) >= 1) == (answer.status_code == 429)
        # One count for all kinds, and right ones pass.
        assert one.get("/workspace", headers={"Authorization": "Bearer guess"}).status_code == 429
        right = {"Authorization": f"Bearer {sandbox['sandbox']['token']}"}
        found = one.post(f"/s/{sandbox['sandbox']['id']}/files/list", headers=right, json={"dirPath": "/"})
        assert found.status_code not in (401, 403, 429), found.text
