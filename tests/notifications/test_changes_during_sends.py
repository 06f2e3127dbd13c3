"""What changes while a send is under way: its counts sum up, nothing is sent twice, and no other account waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from accounts.services import account_delete
from notifications.devices import device_delete, device_register
from notifications.models import Device, Provider, Send, SendState
from notifications.sends import queue
from notifications.sends.dispatcher import PushDispatcher
from notifications.tokens import token_delete
from tests.notifications.browsers import PushService
from tests.notifications.rows import web_device
from tests.notifications.senders import Sender, counts
from tests.notifications.test_many_devices import in_thread
from tests.threads import wait_until
from workspaces.rows import delete_row

pytestmark = pytest.mark.django_db(transaction=True)
Pushing = Callable[..., AbstractContextManager[PushDispatcher]]
DEVICES = 24


def delete_devices(sender: Sender) -> None:
    for device in Device.objects.filter(account=sender.account):
        device_delete(device=device, actor="test")


def register_again(sender: Sender) -> None:
    """Each under its id, at another address."""
    for device in Device.objects.filter(account=sender.account):
        address = {**device.address, "endpoint": device.address["endpoint"] + "-again"}
        device_register(
            account=sender.account,
            device_id=device.device_id,
            platform="web",
            provider=Provider.WEB_PUSH,
            address=address,
            actor="test",
        )


def delete_account(sender: Sender) -> None:
    delete_row(sender.workspace)
    account_delete(account=sender.account)


CHANGES: dict[str, Callable[[Sender], object]] = {
    "devices are removed": delete_devices,
    "devices register again": register_again,
    "the token is deleted": lambda sender: token_delete(token=sender.token, actor="test"),
    "the workspace is deleted": lambda sender: delete_row(sender.workspace),
    "the account is deleted": delete_account,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_send_is_counted_whatever_is_changed(
    new_sender: Callable[[str], Sender],
    browsers: PushService,
    pushing: Pushing,
    change: Callable[[Sender], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("notifications.sends.running.CHUNK", 8)
    monkeypatch.setattr("notifications.sends.fanout.CHUNK", 8)
    changed, other = new_sender("changed"), new_sender("other")
    for number in range(DEVICES):
        web_device(changed.account, f"d{number}", browsers.subscriber(f"c{number}", "slow"))
        browsers.subscribers[f"c{number}-again"] = browsers.subscribers[f"c{number}"]
        web_device(other.account, f"d{number}", browsers.subscriber(f"o{number}"))
    with pushing(threads=4), ThreadPoolExecutor(2) as pool:
        first = in_thread(pool, changed)
        wait_until(lambda: browsers.requests["slow"] >= 3)
        change(changed)
        assert counts(other.send(title="t")) == (DEVICES, 0, DEVICES)
        answer = first.result()
    assert answer["devices"] == DEVICES
    assert {len(found) for found in browsers.arrived.values()} == {1}
    sent = [name for name in browsers.arrived if name.startswith("c")]
    assert answer["delivered"] == len(sent)
    assert not Send.objects.exclude(state=SendState.ENDED).exists()


@pytest.mark.parametrize("hours", [-24, 24])
def test_a_clock_that_is_set_costs_no_device_a_second_notification(
    sender: Sender, browsers: PushService, pushing: Pushing, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a send, while the sweep runs and another process looks for sends."""
    for number in range(DEVICES):
        web_device(sender.account, f"d{number}", browsers.subscriber(f"d{number}", "slow"))
    now = timezone.now
    with pushing(threads=4), ThreadPoolExecutor(1) as pool:
        waiting = in_thread(pool, sender)
        wait_until(lambda: browsers.requests["slow"] >= 3)
        monkeypatch.setattr("django.utils.timezone.now", lambda: now() + timedelta(hours=hours))
        queue.end_overdue_sends()
        with pushing(threads=4):
            answer = waiting.result()
            wait_until(lambda: not queue.live_sends().exists())
    assert answer["devices"] == DEVICES
    assert {len(found) for found in browsers.arrived.values()} == {1}
    assert answer["delivered"] <= len(browsers.arrived)


def test_a_database_that_is_away_in_the_middle_of_a_send_costs_no_device(
    sender: Sender, browsers: PushService, pushing: Pushing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("notifications.sends.running.CHUNK", 8)
    away = threading.Event()
    for name in ("claim_sends", "devices_hand_out", "write_progress", "send_end"):
        monkeypatch.setattr(queue, name, unless(away, getattr(queue, name)))
    for number in range(DEVICES):
        web_device(sender.account, f"d{number}", browsers.subscriber(f"d{number}", "slow"))
    with pushing(threads=4), ThreadPoolExecutor(1) as pool:
        waiting = in_thread(pool, sender)
        wait_until(lambda: browsers.requests["slow"] >= 3)
        away.set()
        time.sleep(1.5)
        away.clear()
        assert counts(waiting.result()) == (DEVICES, 0, DEVICES)
    assert {len(found) for found in browsers.arrived.values()} == {1}


def unless(away: threading.Event, work: Callable[..., Any]) -> Callable[..., Any]:
    def carried_out(*args: Any, **kwargs: Any) -> Any:
        if away.is_set():
            raise OperationalError("database or disk is full")
        return work(*args, **kwargs)

    return carried_out
