"""Limits on guessing client secrets."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from accounts.models import Credential
from common import wrong_secrets
from common.attempts import AttemptLimits, FailureLimit, Remembered, network_of
from tests.callers import Caller

pytestmark = pytest.mark.django_db
SENTENCE = "Too many attempts with a wrong secret. Try again in"


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> FailureLimit:
    """Five wrong secrets of one address and eight for one client id."""
    made = FailureLimit(AttemptLimits(f"secret-{os.urandom(4).hex()}", 5, 8, 60))
    monkeypatch.setattr(wrong_secrets, "_failures", lambda: made)
    return made


def asked(api: Caller, secret: str, address: str = "192.0.2.1", client_id: str = "") -> Any:
    headers = {"X-Client-ID": client_id or api.client_id, "X-Client-Secret": secret}
    return api.client.get("/workspace", headers=headers, REMOTE_ADDR=address)


def test_an_address_with_many_wrong_secrets_is_refused_the_wrong_ones(
    api: Caller, failures: FailureLimit, caplog: pytest.LogCaptureFixture
) -> None:
    statuses = [asked(api, "wrong", client_id=f"cli_{number}").status_code for number in range(7)]
    assert statuses == [401] * 5 + [429] * 2
    refused = asked(api, "wrong")
    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert refused.json()["message"].startswith(SENTENCE)
    assert 1 <= int(refused["Retry-After"]) <= 60
    assert asked(api, "wrong", "192.0.2.2").status_code == 401
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
    for _ in range(7):
        asked(stranger, "wrong")
    assert asked(api, "wrong").status_code == 429
    assert asked(api, api.secret).status_code == 200
    assert asked(stranger, stranger.secret).status_code == 200


def test_wrong_access_tokens_count_with_wrong_secrets(api: Caller, failures: FailureLimit) -> None:
    minted = api.post("/tokens", {"scope": "account"}).json()["token"]

    def by_token(token: str) -> int:
        return int(api.client.get("/workspace", headers={"Authorization": f"Bearer {token}"}).status_code)

    assert [asked(api, "wrong", "127.0.0.1").status_code for _ in range(3)] == [401] * 3
    assert [by_token(f"wrong{number}") for number in range(4)] == [401] * 2 + [429] * 2
    assert by_token(minted) == 200
    assert api.client.get("/workspace").status_code == 401


def test_a_token_that_has_expired_or_was_revoked_is_no_guess(
    api: Caller, failures: FailureLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs poll with one until they renew it, behind one address with many others."""
    expired, revoked = (api.post("/tokens", {"scope": "account", "ttl": ttl}).json()["token"] for ttl in (60, 3600))

    def by_token(token: str) -> int:
        return int(api.client.get("/workspace", headers={"Authorization": f"Bearer {token}"}).status_code)

    now = time.time() + 61
    monkeypatch.setattr("accounts.tokens.time.time", lambda: now)
    assert [by_token(expired) for _ in range(8)] == [401] * 8
    assert by_token(revoked) == 200
    credential = Credential.objects.get(client_id=api.client_id)
    Credential.objects.filter(pk=credential.pk).update(epoch=credential.epoch + 1)
    assert [by_token(revoked) for _ in range(8)] == [401] * 8
    assert by_token("guessed") == 401


def test_a_refused_address_costs_no_call_of_redis(
    api: Caller, failures: FailureLimit, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(7):
        asked(api, "wrong")
    monkeypatch.setattr("common.attempts.count_request", lambda *args, **more: pytest.fail("counted"))
    assert asked(api, "wrong").status_code == 429


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
