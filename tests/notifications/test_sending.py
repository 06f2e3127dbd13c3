"""A request to send, from the token to the devices and back: counts, codes, pruning, pauses, what arrives."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from notifications.models import Device, ProviderPause, Send, SendState
from notifications.sends import requests
from notifications.sends.dispatcher import PushDispatcher
from notifications.vapid import vapid_public_key
from tests.notifications.browsers import PushService
from tests.notifications.google import Google
from tests.notifications.rows import fcm_device, web_device
from tests.notifications.senders import Sender, by_code, counts

pytestmark = pytest.mark.django_db(transaction=True)
Pushing = Callable[..., AbstractContextManager[PushDispatcher]]


def test_without_devices_nothing_is_sent(sender: Sender) -> None:
    answer = sender.send(title="Built")
    assert counts(answer) == (0, 0, 0)
    assert "errors" not in answer
    assert not Send.objects.exists()


def test_a_phone_and_a_browser_get_the_notification(
    sender: Sender, phones: Google, browsers: PushService, pushing: Pushing
) -> None:
    fcm_device(sender.account, "phone", "good-phone")
    web_device(sender.account, "browser", browsers.subscriber("tab"))
    own = {"workspace_id": sender.workspace.pk, "channel": "workspace"}
    with pushing():
        answer = sender.send(title="Built", body="Größe 😀", data={"n": 3, "list": [1, "a"], "s": "x", "none": None})
    assert counts(answer) == (2, 0, 2)
    data = {"n": "3", "list": '[1,"a"]', "s": "x", "none": "null", **own}
    (message,) = phones.arrived["good-phone"]
    assert message["notification"] == {"title": "Built", "body": "Größe 😀"}
    assert message["data"] == data
    assert browsers.arrived["tab"] == [{"title": "Built", "body": "Größe 😀", "data": data}]
    assert (browsers.problems, browsers.keys) == ([], {vapid_public_key()})


def test_the_sender_is_named_by_the_platform(sender: Sender, browsers: PushService, pushing: Pushing) -> None:
    web_device(sender.account, "browser", browsers.subscriber("tab"))
    sender.token.metadata = {"channel": "alerts"}
    sender.token.save()
    with pushing():
        sender.send(title="Built", data={"workspace_id": "ws_of_another", "channel": "mine", "kept": "yes"})
    (found,) = browsers.arrived["tab"]
    assert found["data"] == {"workspace_id": sender.workspace.pk, "channel": "alerts", "kept": "yes"}


PHONES = {
    "good-1": "",
    "unregistered-1": "registration-token-not-registered",
    "thirdparty-1": "third-party-auth-error",
    "quota-1": "message-rate-exceeded",
    "mismatch-1": "mismatched-credential",
    "invalid-1": "invalid-argument",
    "unavailable-1": "server-unavailable",
    "failing-1": "server-unavailable",
    "broken-1": "unknown-error",
    "strange-1": "unknown-error",
}


@pytest.mark.parametrize(("token", "code"), PHONES.items())
def test_what_fcm_answers(sender: Sender, phones: Google, pushing: Pushing, token: str, code: str) -> None:
    fcm_device(sender.account, "phone", token)
    with pushing():
        answer = sender.send()
    assert by_code(answer) == ({code: 1} if code else {})
    assert Device.objects.exists() == (code != "registration-token-not-registered")


def test_a_503_of_fcm_is_tried_again_and_an_answer_that_never_comes_is_not(
    sender: Sender, phones: Google, pushing: Pushing
) -> None:
    fcm_device(sender.account, "down", "unavailable-1")
    fcm_device(sender.account, "silent", "silent-1")
    with pushing():
        answer = sender.send()
    assert by_code(answer) == {"server-unavailable": 1, "deadline-exceeded": 1}
    # The silent one may have the message: it is not posted a second time.
    assert (phones.requests["unavailable"], phones.requests["silent"]) == (3, 1)


BROWSERS = {
    "201": "",
    "400": "invalid-argument",
    "401": "third-party-auth-error",
    "403": "third-party-auth-error",
    "404": "registration-token-not-registered",
    "410": "registration-token-not-registered",
    "413": "payload-size-limit-exceeded",
    "418": "unknown-error",
    "301": "unknown-error",
    "429": "message-rate-exceeded",
    "500": "server-unavailable",
    "503": "server-unavailable",
}


@pytest.mark.parametrize(("status", "code"), BROWSERS.items())
def test_what_a_push_service_answers(
    sender: Sender, browsers: PushService, pushing: Pushing, status: str, code: str
) -> None:
    web_device(sender.account, "browser", browsers.subscriber("tab", status))
    with pushing():
        answer = sender.send()
    assert by_code(answer) == ({code: 1} if code else {})
    assert Device.objects.exists() == (code != "registration-token-not-registered")
    assert browsers.problems == []


def test_without_credentials_the_setting_is_named(sender: Sender, pushing: Pushing) -> None:
    fcm_device(sender.account, "phone")
    with pushing():
        answer = sender.send()
    assert by_code(answer) == {"third-party-auth-error": 1}
    assert "PLATFORM_FCM_CREDENTIALS" in answer["errors"][0]["message"]


@pytest.mark.parametrize(("status", "code"), [(400, "third-party-auth-error"), (503, "server-unavailable")])
def test_one_device_of_many_asks_for_a_login_that_fails(
    sender: Sender, phones: Google, pushing: Pushing, status: int, code: str
) -> None:
    for number in range(20):
        fcm_device(sender.account, f"phone{number}")
    phones.login_status = status
    with pushing():
        answer = sender.send()
    assert set(by_code(answer)) <= {code, "third-party-auth-error"}
    assert answer["failed"] == 20
    # The library itself repeats a login that a server refused for a moment.
    assert phones.logins <= 4


def test_a_device_that_was_registered_again_is_not_pruned(
    sender: Sender, browsers: PushService, pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = browsers.subscriber("old", "410"), browsers.subscriber("new")
    device = web_device(sender.account, "browser", old)
    answered = browsers.answer

    def registered_between(path: str, headers: dict[str, str], body: bytes) -> int:
        if path.endswith("/old"):
            Device.objects.filter(pk=device.pk).update(address=new.address, address_hash="another")
        return answered(path, headers, body)

    monkeypatch.setattr(browsers, "answer", registered_between)
    with pushing():
        assert by_code(sender.send()) == {"registration-token-not-registered": 1}
        assert Device.objects.get().address == new.address
        assert counts(sender.send()) == (1, 0, 1)


@pytest.mark.parametrize("status", ["429", "503"])
def test_a_push_service_that_asks_to_wait_is_left_alone_also_after_a_restart(
    sender: Sender, new_sender: Callable[[str], Sender], browsers: PushService, pushing: Pushing, status: str
) -> None:
    other = new_sender("other")
    web_device(sender.account, "browser", browsers.subscriber("tab", status))
    web_device(other.account, "browser", browsers.subscriber("other"))
    browsers.retry_after = "120"
    with pushing():
        sender.send()
    with pushing():
        assert by_code(sender.send()) == {"message-rate-exceeded": 1}
        # What one account's endpoints say holds for that account.
        assert counts(other.send()) == (1, 0, 1)
    assert browsers.requests[status] == 1
    ProviderPause.objects.all().delete()
    with pushing():
        sender.send()
    assert browsers.requests[status] == 2


def test_fcm_that_asks_to_wait_is_left_alone(sender: Sender, phones: Google, pushing: Pushing) -> None:
    fcm_device(sender.account, "phone", "unavailable-1")
    phones.retry_after = "3600000"
    with pushing():
        assert by_code(sender.send()) == {"server-unavailable": 1}
        assert by_code(sender.send()) == {"message-rate-exceeded": 1}
    # Not tried again either, as it said when.
    assert phones.requests["unavailable"] == 1


def test_a_body_is_shortened_and_data_is_not(
    sender: Sender, phones: Google, browsers: PushService, pushing: Pushing
) -> None:
    fcm_device(sender.account, "phone", "good-1")
    web_device(sender.account, "browser", browsers.subscriber("tab"))
    body = "äöü😀" * 1000
    with pushing():
        assert counts(sender.send(title="T", body=body, data={"k": "v" * 500})) == (2, 0, 2)
        answer = sender.send(title="T", body=body, data={"k": "v" * 4000})
    assert by_code(answer) == {"payload-size-limit-exceeded": 2}
    (seen,), (message,) = browsers.arrived["tab"], phones.arrived["good-1"]
    for found in (seen, message["notification"] | {"data": message["data"]}):
        assert body.startswith(found["body"])
        assert 1000 < len(found["body"]) < 4000
        assert found["data"]["k"] == "v" * 500


def test_a_request_waits_for_its_time_and_the_sending_goes_on(
    sender: Sender, browsers: PushService, pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WAIT_SECONDS", 1.5)
    web_device(sender.account, "good", browsers.subscriber("tab"))
    web_device(sender.account, "silent", browsers.subscriber("silent", "silent"))
    browsers.silent_seconds = 3.0
    with pushing():
        answer = sender.send()
        assert (counts(answer), by_code(answer)) == ((1, 1, 2), {"deadline-exceeded": 1})
        assert Send.objects.get().state == SendState.RUNNING
    found = Send.objects.get()
    assert (found.state, found.delivered, found.failed, found.content) == (SendState.ENDED, 1, 1, None)


def test_without_the_process_a_request_gets_its_counts(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "WAIT_SECONDS", 0.3)
    fcm_device(sender.account, "phone")
    answer: dict[str, Any] = sender.send()
    assert by_code(answer) == {"deadline-exceeded": 1}
