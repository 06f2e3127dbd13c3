"""Tokens and devices made directly."""

from __future__ import annotations

from typing import Any

from accounts.models import Account
from notifications.devices import address_hash
from notifications.models import Device, Provider, SendToken
from notifications.tokens import token_create
from tests.notifications.browsers import Subscriber
from workspaces.models import Workspace


def send_token(workspace: Workspace, **options: Any) -> tuple[SendToken, str]:
    """A token of the workspace, and its plaintext."""
    values: dict[str, Any] = {"name": "alerts", "metadata": {}, **options}
    return token_create(workspace=workspace, actor="test", **values)


def fcm_device(account: Account, device_id: str, token: str = "") -> Device:
    """A phone; by default its registration token is its name."""
    return _device(account, device_id, "android", Provider.FCM, {"fcm_token": token or device_id})


def web_device(account: Account, device_id: str, subscriber: Subscriber) -> Device:
    """A browser."""
    return _device(account, device_id, "web", Provider.WEB_PUSH, subscriber.address)


def _device(account: Account, device_id: str, platform: str, provider: Provider, address: dict[str, Any]) -> Device:
    return Device.objects.create(
        account=account,
        device_id=device_id,
        platform=platform,
        provider=provider,
        address=address,
        address_hash=address_hash(address),
    )
