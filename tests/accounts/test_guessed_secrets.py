"""Limits on guessing client secrets."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from accounts import authentication
from common.attempts import AttemptLimits, FailureLimit, Remembered, network_of
from tests.callers import Caller

pytestmark = pytest.mark.django_db
SENTENCE = "Too many attempts with a wrong secret. Try again in"


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> FailureLimit:
    """Five wrong secrets of one address and eight for one client id."""
    made = FailureLimit(AttemptLimits(f"secret-{os.urandom(4).hex()}", 5, 8, 60))
    monkeypatch.setattr(authentication, "_failures", lambda: made)
    return made


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
