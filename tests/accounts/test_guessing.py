"""Limits on guessing passwords of the admin."""

from __future__ import annotations

import os
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

from accounts import login, password_hashing
from common.attempts import AttemptLimits
from common.errors import RateLimited

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
    deadline = time.monotonic() + 120
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
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")
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
            stranger.result(120)


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
    assert "cannot be counted" in caplog.text
