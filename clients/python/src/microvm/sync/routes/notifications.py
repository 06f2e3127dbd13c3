"""Send tokens, devices, and notifications to them.

Written by `make client`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Unpack

from microvm.addresses import quoted
from microvm.sync.group import Group
from microvm.types.notifications import (
    CreateSendTokenRequest,
    Device,
    NewSendToken,
    RegisterDeviceRequest,
    SendNotificationRequest,
    SendNotificationResponse,
    SendToken,
)


class NotificationRoutes(Group):
    """Send tokens, devices, and notifications to them."""

    def create_token(self, **body: Unpack[CreateSendTokenRequest]) -> NewSendToken:
        """Create a send token of a workspace. It is in this response only, and ends with the workspace."""
        answer: NewSendToken = self._call("POST", "/notifications/tokens", body=body, part="token")
        return answer

    def tokens(self, *, workspace_id: str | None = None, page_size: int = 1000) -> Iterator[SendToken]:
        """The send tokens of the workspaces that the credential reaches, newest first; revoked ones, too."""
        return self._offsets("/notifications/tokens", "tokens", {"workspace_id": workspace_id}, page_size)

    def revoke_token(self, token: str) -> SendToken:
        """Refuse sends with this token from now on. Idempotent; the record is kept."""
        answer: SendToken = self._call(
            "POST", f"/notifications/tokens/{quoted(token)}/revoke", part="token", again=True
        )
        return answer

    def delete_token(self, token: str) -> None:
        """Remove a send token, whether or not it is revoked."""
        self._delete(f"/notifications/tokens/{quoted(token)}")

    def send(self, *, send_token: str, **body: Unpack[SendNotificationRequest]) -> SendNotificationResponse:
        """Send a notification to all devices of the token's owner."""
        answer: SendNotificationResponse = self._call("POST", "/notifications/send", body=body, bearer=send_token)
        return answer

    def register_device(self, **body: Unpack[RegisterDeviceRequest]) -> Device:
        """Register a device, or give a registered one its new address (200)."""
        answer: Device = self._call("POST", "/notifications/devices", body=body, part="device", again=True)
        return answer

    def devices(self, *, page_size: int = 1000) -> Iterator[Device]:
        """The devices of the account, newest first; at most 1,000."""
        return self._offsets("/notifications/devices", "devices", {}, page_size)

    def delete_device(self, device: str) -> None:
        """Remove a device, by its `device_id` or its `id`."""
        self._delete(f"/notifications/devices/{quoted(device)}")

    def web_push_key(self) -> str:
        """The public key of this service for Web Push. It never changes: subscriptions are bound to it."""
        answer: str = self._call("GET", "/notifications/web-push-key", part="key")
        return answer
