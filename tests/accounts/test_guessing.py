"""Limits on guessing passwords of the admin and client secrets."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.core import signing
from django.test import Client

from accounts import authentication, login, password_hashing
from common.attempts import AttemptLimits, FailureLimit, Remembered, network_of
from common.errors import RateLimited
from tests.callers import Caller

pytestmark = pytest.mark.django_db
LOGIN = "/admin/login/"
PASSWORD = "a-right-password-1"
WRONG = {"username": "root", "password": "wrong"}
SENTENCE = "Too many attempts with a wrong secret. Try again in"


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> AttemptLimits:
    """Three logins of one address and six for one name, counted by themselves."""
    made = AttemptLimits(f"login-{os.urandom(4).hex()}", 3, 6, 60)
    monkeypatch.setattr(login, "_limits", lambda: made)
    return made


@pytest.fixture
def root() -> str:
    get_user_model().objects.create_superuser("root", password=PASSWORD)
    return "root"


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> FailureLimit:
    """Five wrong secrets of one address and eight for one client id."""
    made = FailureLimit(AttemptLimits(f"secret-{os.urandom(4).hex()}", 5, 8, 60))
    monkeypatch.setattr(authentication, "_failures", lambda: made)
    return made


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The passwords that were hashed, by a hasher that costs nothing."""
    seen: list[str] = []

    def encode(self: Any, password: str, salt: str, iterations: int | None = None) -> str:
        seen.append(password)
        return f"{self.algorithm}$1${salt}${password}"

    monkeypatch.setattr(PBKDF2PasswordHasher, "encode", encode)
    monkeypatch.setattr(PBKDF2PasswordHasher, "must_update", lambda self, encoded: False)
    return seen


def tried(address: str = "192.0.2.1", client: Client | None = None, **fields: str) -> Any:
    return (client or Client()).post(LOGIN, {**WRONG, **fields}, REMOTE_ADDR=address)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_an_address_is_refused_before_the_password_is_hashed(
    hashed: list[str], root: str, limits: AttemptLimits, caplog: pytest.LogCaptureFixture
) -> None:
    hashed.clear()
    assert [tried(username=f"user-{number}").status_code for number in range(5)] == [200, 200, 200, 429, 429]
    assert len(hashed) == 3
    refused = tried(password=PASSWORD)
    assert refused.status_code == 429
    assert 1 <= int(refused["Retry-After"]) <= 60
    assert SENTENCE in refused.content.decode()
    assert len(hashed) == 3
    assert "sessionid" not in refused.cookies
    assert tried("192.0.2.2").status_code == 200
    (one,) = [record.getMessage() for record in caplog.records if "too many" in record.getMessage()]
    assert "192.0.2.1" in one
    assert "user-3" not in caplog.text
    assert PASSWORD not in caplog.text


def test_a_name_is_refused_whatever_the_address(hashed: list[str], root: str, limits: AttemptLimits) -> None:
    hashed.clear()
    statuses = [tried(f"192.0.2.{number}").status_code for number in range(1, 9)]
    assert statuses == [200] * 6 + [429] * 2
    assert len(hashed) == 6
    assert tried("192.0.2.99", username="another").status_code == 200


def test_a_right_password_does_not_count(hashed: list[str], root: str, limits: AttemptLimits) -> None:
    assert [tried(password=PASSWORD).status_code for _ in range(8)] == [302] * 8
    assert [tried().status_code for _ in range(4)] == [200, 200, 200, 429]


def test_a_browser_that_has_logged_in_is_not_locked_out_by_others(
    hashed: list[str], root: str, limits: AttemptLimits
) -> None:
    known = Client()
    assert tried("192.0.2.1", known, password=PASSWORD).status_code == 302
    known.post("/admin/logout/")
    for number in range(10, 20):
        tried(f"192.0.2.{number}")
    for _ in range(4):
        tried("192.0.2.1")
    assert tried("192.0.2.1", password=PASSWORD).status_code == 429
    cookie = known.cookies[login.COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/admin/")
    assert tried("192.0.2.1", known, password=PASSWORD).status_code == 302
    # It has attempts of its own, and for that name only.
    known.cookies.pop("sessionid")
    assert tried("192.0.2.1", known, username="another").status_code == 429
    assert [tried("192.0.2.1", known).status_code for _ in range(4)] == [200, 200, 200, 429]


def test_a_known_browser_is_no_longer_known_once_the_password_was_changed(
    hashed: list[str], root: str, limits: AttemptLimits
) -> None:
    known = Client()
    assert tried("192.0.2.1", known, password=PASSWORD).status_code == 302
    user = get_user_model().objects.get(username=root)
    user.set_password("another-password-2")
    user.save()
    for number in range(10, 20):
        tried(f"192.0.2.{number}")
    known.cookies.pop("sessionid")
    assert tried("192.0.2.2", known, password="another-password-2").status_code == 429
    assert tried("192.0.2.2", known).status_code == 429  # nor is it counted by itself


def test_a_cookie_of_an_earlier_version_makes_no_known_browser(
    hashed: list[str], root: str, limits: AttemptLimits
) -> None:
    old = Client()
    old.cookies[login.COOKIE] = signing.dumps({"id": "0" * 16, "name": root}, salt=login._SALT)
    for number in range(10, 20):
        tried(f"192.0.2.{number}")
    assert tried("192.0.2.1", old, password=PASSWORD).status_code == 429


def test_a_known_browser_logs_in_while_strangers_fill_the_queue(
    hashed: list[str], root: str, limits: AttemptLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Client()
    assert tried("192.0.2.1", known, password=PASSWORD).status_code == 302
    known.post("/admin/logout/")
    monkeypatch.setattr(password_hashing, "WAIT_SECONDS", 20)
    let_go = threading.Event()

    def hold(_: int) -> None:
        with password_hashing.password_hashing():
            let_go.wait(20)

    with ThreadPoolExecutor(password_hashing.MAX_WAITING) as pool:
        strangers = [pool.submit(hold, number) for number in range(password_hashing.MAX_WAITING)]
        try:
            until(lambda: not password_hashing._waiting[False]._value)
            assert tried("192.0.2.2", password=PASSWORD).status_code == 429
            assert tried("192.0.2.1", known, password=PASSWORD).status_code == 302
        finally:
            let_go.set()
        for stranger in strangers:
            stranger.result(30)


def test_of_many_logins_at_once_no_more_than_the_limit_are_hashed(
    hashed: list[str], root: str, limits: AttemptLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier = threading.Barrier(12)

    def one(_: int) -> str:
        barrier.wait(10)
        try:
            login.Attempt(limits, "192.0.2.1", "root")
        except RateLimited:
            return "refused"
        return "checked"

    with ThreadPoolExecutor(12) as pool:
        assert sorted(pool.map(one, range(12))) == ["checked"] * 3 + ["refused"] * 9


def test_without_redis_logins_go_on(
    hashed: list[str], root: str, limits: AttemptLimits, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    assert [tried().status_code for _ in range(4)] == [200] * 4
    assert tried(password=PASSWORD).status_code == 302
    assert "not counted" in caplog.text


# One password at a time


def test_one_password_is_hashed_at_a_time_and_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = 0, 0
    lock, refused = threading.Lock(), []
    begin = threading.Barrier(24)

    def one(_: int) -> None:
        nonlocal inside, most
        begin.wait(10)
        try:
            with password_hashing.password_hashing():
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.05)
                with lock:
                    inside -= 1
        except RateLimited as exc:
            refused.append(exc.headers["Retry-After"])

    with ThreadPoolExecutor(24) as pool:
        list(pool.map(one, range(24)))
    assert most == 1
    assert len(refused) >= 24 - 2 * password_hashing.MAX_WAITING
    assert set(refused) == {"2"}
    with password_hashing.password_hashing():
        pass


def _hold(ready: Any) -> None:
    with password_hashing.password_hashing():
        ready.set()
        time.sleep(60)


def test_processes_share_the_lock_and_a_killed_one_leaves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(ready,), daemon=True)
    holder.start()
    try:
        assert ready.wait(20)
        monkeypatch.setattr(password_hashing, "WAIT_SECONDS", 0.1)
        with pytest.raises(RateLimited), password_hashing.password_hashing():
            pass
        os.kill(int(holder.pid or 0), signal.SIGKILL)
        holder.join(20)
        with password_hashing.password_hashing():
            pass
    finally:
        holder.kill()


# Client secrets


def asked(api: Caller, secret: str, address: str = "192.0.2.1", client_id: str = "") -> Any:
    headers = {"X-Client-ID": client_id or api.client_id, "X-Client-Secret": secret}
    return api.client.get("/workspace", headers=headers, REMOTE_ADDR=address)


def test_an_address_with_many_wrong_secrets_is_refused_unseen(
    api: Caller, failures: FailureLimit, django_assert_num_queries: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    statuses = [asked(api, "wrong", client_id=f"cli_{number}").status_code for number in range(7)]
    assert statuses == [401] * 5 + [429] * 2
    with django_assert_num_queries(0):
        refused = asked(api, api.secret)
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert 1 <= int(refused["Retry-After"]) <= 60
    assert asked(api, api.secret, "192.0.2.2").status_code == 200
    assert "too many" in caplog.text
    assert "cli_5" not in caplog.text


def test_a_token_is_not_exchanged_for_a_guessed_secret_without_a_limit(api: Caller, failures: FailureLimit) -> None:
    headers = {"X-Client-ID": api.client_id, "X-Client-Secret": "wrong"}
    statuses = [
        api.client.post("/tokens", {"scope": "account"}, "application/json", headers=headers).status_code
        for _ in range(7)
    ]
    assert statuses == [401] * 5 + [429] * 2


def test_clients_that_share_the_address_of_a_guesser_go_on(
    api: Caller, stranger: Caller, failures: FailureLimit
) -> None:
    assert asked(api, api.secret).status_code == 200
    for _ in range(7):
        asked(stranger, "wrong")
    assert asked(api, api.secret).status_code == 200
    assert asked(api, "wrong").status_code == 429
    assert asked(stranger, stranger.secret).status_code == 429


def test_a_client_goes_on_whichever_process_serves_it(
    api: Caller, failures: FailureLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FailureLimit(failures._limits)
    for limit, caller in ((failures, api), (other, api)):
        monkeypatch.setattr(authentication, "_failures", lambda limit=limit: limit)
        if limit is failures:
            assert asked(caller, caller.secret).status_code == 200
        for _ in range(7):
            asked(caller, "wrong")
    assert asked(api, api.secret).status_code == 200
    assert asked(api, api.secret, "192.0.2.3").status_code == 200


def test_the_owner_of_a_guessed_id_goes_on_from_everywhere(api: Caller, failures: FailureLimit) -> None:
    statuses = [asked(api, "wrong", f"192.0.2.{number}").status_code for number in range(10, 20)]
    assert statuses == [401] * 8 + [429] * 2
    assert asked(api, api.secret, "192.0.2.99").status_code == 200


def test_right_secrets_are_not_counted(api: Caller, failures: FailureLimit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.attempts.count_request", lambda *args, **more: pytest.fail("counted"))
    assert asked(api, api.secret).status_code == 200


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1::/56"),
        ("2001:db8:1:2ff::1", "2001:db8:1:200::/56"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("", "unknown"),
        ("no address", "unknown"),
    ],
)
def test_of_ipv6_one_network_is_one_address(address: str, network: str) -> None:
    assert network_of(address) == network


def test_what_a_process_remembers_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.attempts.REMEMBERED", 10)
    known = Remembered()
    for number in range(100):
        known.add(f"192.0.2.{number}", 60)
    assert [bool(known.seconds_left(f"192.0.2.{number}")) for number in (0, 89, 90, 99)] == [False, False, True, True]
