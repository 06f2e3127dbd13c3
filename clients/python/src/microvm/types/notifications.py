"""Send tokens, devices, and notifications to them.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class CreateSendTokenRequest(TypedDict):
    """Body, or a part of it, of `notifications.create_token`."""

    workspace_id: str
    name: NotRequired[str]
    metadata: NotRequired[dict[str, Any]]


class NewSendTokenResponse(TypedDict):
    """Answer, or a part of one, of `notifications.create_token`."""

    token: NewSendToken


class NewSendToken(TypedDict):
    """Answer, or a part of one, of `notifications.create_token`."""

    id: int
    workspace_id: str
    name: str
    metadata: dict[str, Any]
    token_prefix: str
    status: str
    token: str


class SendTokenObjectList(TypedDict):
    """Answer, or a part of one, of `notifications.tokens`."""

    tokens: list[SendToken]
    pagination: dict[str, Any]


class SendToken(TypedDict):
    """Answer, or a part of one, of `notifications.tokens`."""

    id: int
    workspace_id: str
    name: str
    metadata: dict[str, Any]
    token_prefix: str
    status: str
    last_used_at: str | None
    created_at: str
    revoked_at: str | None


class SendTokenResponse(TypedDict):
    """Answer, or a part of one, of `notifications.revoke_token`."""

    token: SendToken


class SendNotificationRequest(TypedDict):
    """Body, or a part of it, of `notifications.send`."""

    title: NotRequired[str]
    body: NotRequired[str]
    data: NotRequired[dict[str, Any]]


class SendNotificationResponse(TypedDict):
    """Answer, or a part of one, of `notifications.send`."""

    delivered: int
    failed: int
    devices: int
    errors: NotRequired[list[SendErrorGroup]]


class SendErrorGroup(TypedDict):
    """Answer, or a part of one, of `notifications.send`."""

    code: str
    message: str
    count: int


class RegisterDeviceRequest(TypedDict):
    """Body, or a part of it, of `notifications.register_device`."""

    device_id: str
    platform: Literal["ios", "android", "web"]
    fcm_token: NotRequired[str]
    web_push: NotRequired[WebPushSubscription]


class WebPushSubscription(TypedDict):
    """Body, or a part of it, of `notifications.register_device`."""

    endpoint: str
    keys: WebPushKeys


class WebPushKeys(TypedDict):
    """Body, or a part of it, of `notifications.register_device`."""

    p256dh: str
    auth: str


class DeviceResponse(TypedDict):
    """Answer, or a part of one, of `notifications.register_device`."""

    device: Device


class Device(TypedDict):
    """Answer, or a part of one, of `notifications.register_device`."""

    id: int
    device_id: str
    platform: str
    provider: str
    created_at: str
    updated_at: str


class DeviceObjectList(TypedDict):
    """Answer, or a part of one, of `notifications.devices`."""

    devices: list[Device]
    pagination: dict[str, Any]


class WebPushKeyResponse(TypedDict):
    """Answer, or a part of one, of `notifications.web_push_key`."""

    key: str
