"""Guessing through the real edge and api: many at once, each address of its own."""

from __future__ import annotations

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx

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
            statuses.append(one.get("/workspace", headers=headers).status_code)
        assert statuses == [401] * limit + [429] * 50
        names = ("X-Client-ID", "X-Client-Secret")
        right = {name: client.http.headers[name] for name in names}
        refused = one.get("/workspace", headers=right)
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert int(refused.headers["Retry-After"]) >= 1
    assert client.http.get("/workspace").status_code == 200
