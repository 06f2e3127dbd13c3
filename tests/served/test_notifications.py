"""Notifications in a whole instance: a browser gets one, `push` is killed in the middle of a fan-out, Redis is away."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from os import kill
from typing import Any

import httpx
import pytest

from tests.notifications.browsers import PushService, Subscriber, from_base64url, push_service
from tests.served.conftest import TestInstance
from tests.served.test_browser import RECORD, VIOLATIONS, navigate, shows
from tests.served.test_cdn_uploads import second_account
from tests.vm.browser import Browser, browser
from tests.vm.client import Api, until

# Rows are all that connects the api and `push`, so on PostgreSQL, too.


@pytest.fixture
def browsers(served: TestInstance, hook_port: int) -> Iterator[PushService]:
    with push_service(hook_port) as made:
        yield made


@pytest.fixture
def token(client: Api, box: str) -> Iterator[str]:
    made: dict[str, Any] = client.call("POST", "/notifications/tokens", 201, json={"workspace_id": box})["token"]
    yield str(made["token"])
    client.patiently("DELETE", f"/notifications/tokens/{made['id']}")
    for device in client.patiently("GET", "/notifications/devices?limit=1000")["devices"]:
        client.patiently("DELETE", f"/notifications/devices/{device['device_id']}")


def send(served: TestInstance, token: str, **body: Any) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    url = f"{served.settings.base_url}/notifications/send"
    answer = httpx.post(url, json={"title": "t", **body}, headers=headers, timeout=120, trust_env=False)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["delivered"] + found["failed"] == found["devices"]
    return found


def register(client: Api, subscriber: Subscriber) -> None:
    body = {"device_id": subscriber.name, "platform": "web", "web_push": subscriber.subscription}
    client.call("POST", "/notifications/devices", 201, json=body)


def test_a_send_is_answered_at_once(served: TestInstance, client: Api, token: str, browsers: PushService) -> None:
    register(client, browsers.subscriber("tab"))
    begun = time.monotonic()
    assert send(served, token)["delivered"] == 1
    assert time.monotonic() - begun < 5
    assert (len(browsers.arrived["tab"]), browsers.problems) == (1, [])


def test_a_fan_out_whose_process_is_killed_is_counted_and_ended(
    served: TestInstance, client: Api, token: str, browsers: PushService
) -> None:
    for number in range(60):
        register(client, browsers.subscriber(f"d{number}", "201" if number % 2 else "silent"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(send, served, token)
        until(lambda: browsers.requests["silent"] >= 10, 10, "the fan-out is in the middle")
        kill(served.pids()["push"], signal.SIGKILL)
        begun = time.monotonic()
        answer = waiting.result()
    assert time.monotonic() - begun < 12
    assert (answer["devices"], answer["failed"] >= 10) == (60, True)
    assert {group["code"] for group in answer["errors"]} == {"messaging/deadline-exceeded"}
    browsers.released.set()
    served.wait_until_running()
    assert all(len(found) == 1 for found in browsers.arrived.values())
    # The next one finds nothing of it in its way.
    until(lambda: send(served, token)["delivered"] == 30, 30, "a later send reaches all that answer")


@pytest.mark.campaign
def test_two_accounts_lose_nothing_where_the_api_is_killed(
    served: TestInstance, client: Api, token: str, browsers: PushService
) -> None:
    """Its clients get no answer; what it had accepted is sent, to each device once."""
    other = second_account(served)
    workspace = other.create("localhost/tiny:1")
    theirs = other.call("POST", "/notifications/tokens", 201, json={"workspace_id": workspace["id"]})["token"]["token"]
    for number in range(20):
        register(client, browsers.subscriber(f"a{number}", "slow"))
        register(other, browsers.subscriber(f"b{number}", "silent" if number == 0 else "slow"))
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(broken_off, served, each) for each in (token, theirs)]
        until(lambda: browsers.requests["silent"], 10, "both are under way")
        kill(served.pids()["api"], signal.SIGKILL)
        for each in waiting:
            each.result()
    browsers.released.set()
    served.wait_until_running()
    until(lambda: len(browsers.arrived) >= 39, 30, "all that answer have theirs")
    assert {len(arrived) for arrived in browsers.arrived.values()} == {1}
    assert send(served, token)["delivered"] == 20
    other.delete(workspace["id"])


def broken_off(served: TestInstance, token: str) -> None:
    """A send whose client may get no answer."""
    with suppress(httpx.HTTPError, AssertionError):
        send(served, token)


def test_without_redis_what_was_accepted_is_sent(
    served: TestInstance, client: Api, token: str, browsers: PushService
) -> None:
    register(client, browsers.subscriber("tab"))
    with served.without("redis"):
        headers = {"Authorization": f"Bearer {token}"}
        url = f"{served.settings.base_url}/notifications/send"
        refused = httpx.post(url, json={"title": "t"}, headers=headers, timeout=120, trust_env=False)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    served.wait_until_running()
    until(lambda: send(served, token)["delivered"] == 1, 30, "it is sent again")


# In the page: a subscription as a push service would make it, with keys of the browser's own.
SUBSCRIBE = """
(async () => {
    const page = await import("/notifications/browser/page.js");
    await page.startWorker();
    const pair = await crypto.subtle.generateKey({ name: "ECDH", namedCurve: "P-256" }, true, ["deriveBits"]);
    const text = bytes => btoa(String.fromCharCode(...new Uint8Array(bytes)))
        .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    const keys = {
        p256dh: text(await crypto.subtle.exportKey("raw", pair.publicKey)),
        auth: text(crypto.getRandomValues(new Uint8Array(16))),
    };
    await page.registerDevice(TOKEN, { endpoint: ENDPOINT, expirationTime: null, keys });
    const { d } = await crypto.subtle.exportKey("jwk", pair.privateKey);
    return { id: page.deviceId(), private: d, auth: keys.auth };
})()
"""
SHOWN = """
navigator.serviceWorker.getRegistration("/notifications/browser/worker.js")
    .then(found => found.getNotifications())
    .then(all => all.map(each => ({ title: each.title, body: each.body, data: each.data })))
"""


def test_a_browser_registers_itself_and_shows_what_is_sent(
    served: TestInstance, client: Api, token: str, browsers: PushService
) -> None:
    access = client.call("POST", "/tokens", 201, json={"scope": "account"})["token"]
    with browser() as chromium:
        page = chromium.open("about:blank")
        page.call("Page.addScriptToEvaluateOnNewDocument", source=RECORD)
        base = f"http://localhost:{served.settings.port}"
        navigate(page, f"{base}/notifications/browser")
        chromium.call("Browser.grantPermissions", origin=base, permissions=["notifications"])
        assert page.value("Notification.permission") == "granted"
        shows(page, "document.querySelector('#ask')")
        endpoint = f"{browsers.origin}/201/tab"
        script = SUBSCRIBE.replace("TOKEN", json.dumps(access)).replace("ENDPOINT", json.dumps(endpoint))
        made = page.value(script)
        browsers.subscribers["tab"] = subscriber_of(made, endpoint)
        assert send(served, token, title="Built", body="All is well.", data={"n": 1})["delivered"] == 1
        (clear,) = browsers.arrived["tab"]
        registration = worker_registration(chromium, page, base)
        (shown,) = until(
            lambda: shown_after(page, base, registration, json.dumps(clear)), 60, "a notification is shown"
        )
        assert (shown["title"], shown["body"], shown["data"]["n"]) == ("Built", "All is well.", "1")
        assert page.value(VIOLATIONS) == []
        assert made["id"] in [each["device_id"] for each in client.call("GET", "/notifications/devices")["devices"]]


def subscriber_of(made: dict[str, str], endpoint: str) -> Subscriber:
    from cryptography.hazmat.primitives.asymmetric import ec

    number = int.from_bytes(from_base64url(made["private"]), "big")
    return Subscriber(endpoint, ec.derive_private_key(number, ec.SECP256R1()), from_base64url(made["auth"]))


def worker_registration(chromium: Browser, page: Any, origin: str) -> str:
    page.call("ServiceWorker.enable")
    return chromium.registration_of(f"{origin}/notifications/browser/")


def shown_after(page: Any, origin: str, registration: str, text: str) -> list[dict[str, Any]]:
    """The notifications that are shown after a delivery as by the browser's push service. Chromium drops what is
    delivered before it has stored the worker's registration, and says nothing.
    """
    page.call("ServiceWorker.deliverPushMessage", origin=origin, registrationId=registration, data=text)
    deadline = time.monotonic() + 5
    while not (shown := page.value(SHOWN)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return list(shown)
