"""A thousand devices of every kind, and two accounts at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.db import connection

from notifications.models import Device, Send, SendState
from notifications.sends import requests
from notifications.sends.dispatcher import PushDispatcher
from notifications.sends.queue import MOST_LIVE_OF_ACCOUNT
from tests.notifications.browsers import PushService
from tests.notifications.google import Google
from tests.notifications.rows import fcm_device, web_device
from tests.notifications.senders import Sender, by_code, counts
from tests.world import assert_error

pytestmark = pytest.mark.django_db(transaction=True)
Pushing = Callable[..., AbstractContextManager[PushDispatcher]]

# How many of each answer; 1,000 in all.
BROWSERS = {"201": 380, "404": 60, "410": 60, "413": 40, "429": 40, "500": 40, "silent": 30}
PHONES = {
    "good": 220,
    "unregistered": 40,
    "thirdparty": 20,
    "quota": 20,
    "mismatch": 20,
    "unavailable": 5,
    "broken": 20,
    "silent": 5,
}
FAILED = {
    "registration-token-not-registered": 160,
    "payload-size-limit-exceeded": 40,
    "message-rate-exceeded": 60,
    "server-unavailable": 45,
    "deadline-exceeded": 35,
    "third-party-auth-error": 20,
    "mismatched-credential": 20,
    "unknown-error": 20,
}


@pytest.mark.campaign
def test_a_thousand_devices_of_all_kinds(
    sender: Sender, browsers: PushService, phones: Google, pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Both servers are threads of this process, whose one interpreter is slower than the real ones.
    monkeypatch.setattr(requests, "WAIT_SECONDS", 100.0)
    browsers.silent_seconds = 60.0
    for kind, number in BROWSERS.items():
        for each in range(number):
            web_device(sender.account, f"w-{kind}-{each}", browsers.subscriber(f"{kind}-{each}", kind))
    for kind, number in PHONES.items():
        for each in range(number):
            fcm_device(sender.account, f"p-{kind}-{each}", f"{kind}-{each}")
    assert Device.objects.count() == 1000
    with pushing(threads=128):
        answer = sender.send(title="To all")
    assert by_code(answer) == FAILED
    assert counts(answer) == (600, 400, 1000)
    assert sorted(browsers.arrived) == sorted(f"201-{each}" for each in range(380))
    assert [len(found) for found in browsers.arrived.values()] == [1] * 380
    good = {token: found for token, found in phones.arrived.items() if token.startswith("good-")}
    assert [len(found) for found in good.values()] == [1] * 220
    assert browsers.problems == []
    assert Device.objects.count() == 1000 - FAILED["registration-token-not-registered"]


def test_devices_that_are_gone_are_removed_together(
    sender: Sender, browsers: PushService, pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PushDispatcher, "GATHER_SECONDS", 0.3)  # what comes of all of them is written at once
    for number in range(6):
        web_device(sender.account, f"d{number}", browsers.subscriber(f"d{number}", "410"))
    web_device(sender.account, "good", browsers.subscriber("good"))
    with pushing(threads=8):
        answer = sender.send(title="t")
    assert by_code(answer) == {"registration-token-not-registered": 6}
    assert list(Device.objects.values_list("device_id", flat=True)) == ["good"]


def in_thread(pool: ThreadPoolExecutor, sender: Sender) -> Any:
    def run() -> dict[str, Any]:
        try:
            return sender.send(title="t")
        finally:
            connection.close()

    return pool.submit(run)


def test_an_account_whose_endpoints_hang_delays_no_other(
    new_sender: Callable[[str], Sender], browsers: PushService, pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WAIT_SECONDS", 3.0)
    hanging, good = new_sender("hanging"), new_sender("good")
    for number in range(100):
        web_device(hanging.account, f"d{number}", browsers.subscriber(f"h{number}", "silent"))
    for number in range(20):
        web_device(good.account, f"d{number}", browsers.subscriber(f"g{number}"))
    with pushing(threads=32), ThreadPoolExecutor(4) as pool:
        waiting = [in_thread(pool, hanging) for _ in range(3)]
        while browsers.requests["silent"] < 16:
            time.sleep(0.01)
        begun = time.monotonic()
        assert counts(good.send(title="t")) == (20, 0, 20)
        assert time.monotonic() - begun < 2.5
        for each in waiting:
            assert counts(each.result()) == (0, 100, 100)
        browsers.released.set()
    assert {len(browsers.arrived[f"g{number}"]) for number in range(20)} == {1}
    assert not {name for name in browsers.arrived if name.startswith("h")}


def test_two_accounts_get_what_is_theirs(
    new_sender: Callable[[str], Sender], browsers: PushService, pushing: Pushing
) -> None:
    senders = [new_sender("one"), new_sender("two")]
    for position, each in enumerate(senders):
        for number in range(30):
            web_device(each.account, "same-id-" + str(number), browsers.subscriber(f"{position}-{number}"))
    with pushing(threads=16), ThreadPoolExecutor(2) as pool:
        answers = [in_thread(pool, each) for each in senders]
        assert [counts(each.result()) for each in answers] == [(30, 0, 30)] * 2
    for name, (found,) in browsers.arrived.items():
        assert found["data"]["workspace_id"] == senders[int(name[0])].workspace.pk


def test_an_account_may_have_so_many_sends_going_on(sender: Sender) -> None:
    fcm_device(sender.account, "phone")
    row = {"workspace_id": "w", "token_id": 1, "content": {}, "devices": 1, "last_device": 1}
    for _ in range(MOST_LIVE_OF_ACCOUNT):
        Send.objects.create(account_id=sender.account.pk, state=SendState.QUEUED, **row)
    answer = sender.post({"title": "x"})
    assert_error(answer, 429, "rate_limited")
    assert answer["Retry-After"]


def test_requests_that_wait_are_threads_of_the_api_and_no_more(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "WAIT_SECONDS", 1.0)
    fcm_device(sender.account, "phone")
    with ThreadPoolExecutor(8, thread_name_prefix="waiting-request") as pool:
        waiting = [in_thread(pool, sender) for _ in range(8)]
        time.sleep(0.5)
        own = {thread.name for thread in threading.enumerate() if thread.name.startswith("waiting-request")}
        others = threading.active_count() - len(own)
        for each in waiting:
            each.result()
    assert threading.active_count() == others
