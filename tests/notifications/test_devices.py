"""Devices: registered, registered again, listed, removed; what is refused of them; how many there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from accounts.scopes import Scope
from notifications.devices import MOST_OF_ACCOUNT, device_register, devices_prune
from notifications.models import Device, NotificationEvent, Provider
from tests.callers import Caller
from tests.notifications.browsers import PushService, Subscriber
from tests.notifications.rows import fcm_device
from tests.threads import run_at_once
from tests.world import assert_error

pytestmark = pytest.mark.django_db

FCM = {"device_id": "phone-1", "platform": "android", "fcm_token": "c9:APA91b"}


def register(caller: Caller, **changes: Any) -> Any:
    return caller.post("/notifications/devices", FCM | changes)


def test_a_phone_is_registered_listed_and_removed(api: Caller) -> None:
    answer = register(api)
    assert answer.status_code == 201
    made = answer.json()["device"]
    assert set(made) == {"id", "device_id", "platform", "provider", "created_at", "updated_at"}
    assert (made["device_id"], made["platform"], made["provider"]) == ("phone-1", "android", "fcm")
    assert api.get("/notifications/devices").json()["devices"] == [made]
    assert api.delete("/notifications/devices/phone-1").json()["message"]
    assert_error(api.delete("/notifications/devices/phone-1"), 404, "not_found")


def test_a_browser_is_registered_with_its_subscription(api: Caller, browsers: PushService) -> None:
    subscriber = browsers.subscriber("tab")
    body = {"device_id": "tab", "platform": "web", "web_push": subscriber.subscription}
    answer = api.post("/notifications/devices", body)
    assert answer.json()["device"]["provider"] == "web_push"
    assert Device.objects.get().address == subscriber.address
    assert subscriber.endpoint not in answer.content.decode()


def test_a_device_has_one_row_however_often_it_registers(api: Caller) -> None:
    register(api)
    again = register(api, fcm_token="another", platform="ios")
    assert (again.status_code, again.json()["device"]["platform"]) == (200, "ios")
    assert Device.objects.get().address == {"fcm_token": "another"}


def test_an_address_belongs_to_one_device_of_an_account(api: Caller, stranger: Caller) -> None:
    """Else one phone would show each notification twice after its app chose another id."""
    register(api)
    assert register(api, device_id="phone-2").status_code == 201
    assert [row.device_id for row in Device.objects.filter(account=api.account)] == ["phone-2"]
    register(stranger)
    assert Device.objects.count() == 2


def test_a_device_is_removed_by_its_number_or_its_name(api: Caller, stranger: Caller) -> None:
    first, second = (register(api, device_id=name, fcm_token=name).json()["device"] for name in ("a", "b"))
    assert 0 < first["id"] < 1 << 53
    assert_error(stranger.delete(f"/notifications/devices/{first['id']}"), 404, "not_found")
    # Its app may have chosen a number: who chose it means its own.
    third = register(api, device_id=str(first["id"]), fcm_token="c").json()["device"]
    assert register(api, device_id="a", fcm_token="another").json()["device"]["id"] == first["id"]
    removed = [api.delete(f"/notifications/devices/{each}").status_code for each in (first["id"], first["id"], "b")]
    assert removed == [200, 200, 200]
    assert {third["id"], first["id"], second["id"]}.isdisjoint(Device.objects.values_list("public_id", flat=True))
    for other in ("0", "9" * 40, second["id"]):
        assert_error(api.delete(f"/notifications/devices/{other}"), 404, "not_found")


def test_devices_of_others_are_not_there(api: Caller, stranger: Caller) -> None:
    register(api)
    assert stranger.get("/notifications/devices").json()["devices"] == []
    assert_error(stranger.delete("/notifications/devices/phone-1"), 404, "not_found")
    assert Device.objects.count() == 1


@pytest.mark.parametrize("scope", [Scope.NAMESPACE, Scope.WORKSPACE, Scope.BILLING])
def test_devices_are_the_accounts(api: Caller, scoped: Callable[..., Caller], scope: Scope) -> None:
    assert_error(register(scoped(api, scope, namespace_id="ns_x", workspace_id="ws_x")), 403, "forbidden")


KEYS = Subscriber("https://push.example/x").subscription["keys"]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"device_id": ""}, "device_id"),
    ({"device_id": "a b"}, "device_id"),
    ({"device_id": "x" * 129}, "device_id"),
    ({"device_id": 5}, "device_id"),
    ({"platform": "symbian"}, "platform"),
    ({"fcm_token": "a b"}, "fcm_token"),
    ({"fcm_token": "x" * 5000}, "fcm_token"),
    ({"web_push": {"endpoint": "https://push.example/x", "keys": KEYS}}, "fcm_token"),
    ({"fcm_token": None}, "fcm_token"),
]


@pytest.mark.parametrize(("changes", "field"), BAD)
def test_what_is_wrong_is_named(api: Caller, changes: dict[str, Any], field: str) -> None:
    answer = register(api, **changes)
    assert_error(answer, 400, "validation_error")
    assert list(answer.json()["details"]) == [field]
    assert not Device.objects.exists()


BAD_SUBSCRIPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"endpoint": "http://push.example/x"}, "web_push.endpoint"),
    ({"endpoint": "https://127.0.0.1/x"}, "web_push.endpoint"),
    ({"endpoint": "https://169.254.169.254/latest"}, "web_push.endpoint"),
    ({"endpoint": "https://[2001:4860:4860::8888]/x"}, "web_push.endpoint"),
    ({"endpoint": "https://user:pass@push.example/x"}, "web_push.endpoint"),
    ({"endpoint": "https://push.example/" + "x" * 2048}, "web_push.endpoint"),
    ({"keys": {**KEYS, "p256dh": "A" * 87}}, "web_push.keys.p256dh"),
    ({"keys": {**KEYS, "p256dh": KEYS["p256dh"][:40]}}, "web_push.keys.p256dh"),
    ({"keys": {**KEYS, "auth": "AAAA"}}, "web_push.keys.auth"),
    ({"keys": {**KEYS, "auth": "%%%%"}}, "web_push.keys.auth"),
    ({"keys": {"auth": KEYS["auth"]}}, "web_push.keys.p256dh"),
    ({"keys": 7}, "web_push.keys.non_field_errors"),
]


@pytest.mark.parametrize(("changes", "field"), BAD_SUBSCRIPTIONS)
def test_a_subscription_that_cannot_be_sent_to_is_refused(api: Caller, changes: dict[str, Any], field: str) -> None:
    subscription = {"endpoint": "https://push.example/x", "keys": KEYS} | changes
    answer = api.post("/notifications/devices", {"device_id": "t", "platform": "web", "web_push": subscription})
    assert_error(answer, 400, "validation_error")
    assert list(answer.json()["details"]) == [field]
    assert not Device.objects.exists()


def test_an_account_has_a_thousand_devices(api: Caller) -> None:
    for number in range(MOST_OF_ACCOUNT):
        fcm_device(api.account, f"device-{number}")
    answer = register(api)
    assert_error(answer, 409, "device_limit_exceeded")
    assert answer.json()["details"] == {"current": 1000, "max": 1000}
    # One that is there may get another address.
    assert register(api, device_id="device-7").status_code == 200
    assert len(api.get("/notifications/devices?limit=1000").json()["devices"]) == 1000


@pytest.mark.django_db(transaction=True)
def test_the_limit_holds_for_registrations_at_once(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("notifications.devices.MOST_OF_ACCOUNT", 3)

    def work(number: int) -> None:
        address = {"fcm_token": f"token-{number}"}
        device_register(
            account=api.account,
            device_id=f"d{number}",
            platform="ios",
            provider=Provider.FCM,
            address=address,
            actor="t",
        )

    outcomes = run_at_once(8, work)
    assert sorted(outcomes) == ["DeviceLimitExceeded"] * 5 + ["done"] * 3
    assert Device.objects.count() == 3
    connection.close()


def test_pruning_leaves_a_device_with_another_address(api: Caller) -> None:
    stale, kept = fcm_device(api.account, "stale"), fcm_device(api.account, "kept")
    Device.objects.filter(pk=kept.pk).update(address_hash="of another address")
    assert devices_prune([stale, kept]) == 1
    assert Device.objects.get().device_id == "kept"
    assert list(NotificationEvent.objects.values_list("subject", "action")) == [("device stale", "pruned")]


def test_the_key_for_browsers_is_made_once_and_encrypted(api: Caller, stranger: Caller) -> None:
    key = api.get("/notifications/web-push-key").json()["key"]
    assert stranger.get("/notifications/web-push-key").json() == {"success": True, "key": key}
    with connection.cursor() as cursor:
        cursor.execute("SELECT private_key, public_key FROM notifications_vapidkey")
        ((private, public),) = cursor.fetchall()
    assert (public, len(key), private[:5]) == (key, 87, "gAAAA")
