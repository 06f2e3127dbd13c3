"""Bodies of the notification routes."""

from __future__ import annotations

import re
from typing import Any

from rest_framework import serializers as s

from common.fields import JSONObject, StrictChar
from common.openapi import Success
from common.serializers import ResponseSerializer, Timestamp
from common.spellings import WorkspaceIdRequest
from notifications.models import DevicePlatform, Provider, TokenStatus

_SPELLED = "Also read as `workspaceId`."
_DEVICE_ID = re.compile(r"[A-Za-z0-9._:-]+")
# Registration tokens have some 160 characters, and no documented length.
_FCM_TOKEN = re.compile(r"[A-Za-z0-9_:.-]+")


class ListTokensQuery(WorkspaceIdRequest):
    workspace_id = s.CharField(required=False, max_length=128, help_text=f"Id or slug of the workspace. {_SPELLED}")


class CreateSendTokenRequest(WorkspaceIdRequest):
    workspace_id = StrictChar(max_length=128, help_text=f"Id or slug of a workspace of the caller. {_SPELLED}")
    name = StrictChar(max_length=120, default="", allow_blank=True)
    metadata = JSONObject(
        default=dict,
        help_text="Any values, at most 16 KiB as JSON. A short text `channel` becomes the notifications' `channel`.",
    )


class SendTokenObject(ResponseSerializer):
    id = s.IntegerField()
    workspace_id = s.CharField()
    name = s.CharField()
    metadata = s.DictField()
    token_prefix = s.CharField(help_text="The first characters of the token, to recognise it by.")
    status = s.ChoiceField(choices=TokenStatus.choices)
    last_used_at = Timestamp(allow_null=True, help_text="Precise to the minute.")
    created_at = Timestamp()
    revoked_at = Timestamp(allow_null=True)


class NewSendTokenObject(ResponseSerializer):
    id = s.IntegerField()
    workspace_id = s.CharField()
    name = s.CharField()
    metadata = s.DictField()
    token_prefix = s.CharField()
    status = s.ChoiceField(choices=TokenStatus.choices)
    token = s.CharField(help_text="Shown here only; the platform stores a hash of it.")


class SendTokenResponse(Success):
    token = SendTokenObject()


class NewSendTokenResponse(Success):
    token = NewSendTokenObject()


class WebPushKeys(s.Serializer[Any]):
    p256dh = StrictChar(max_length=128, help_text="A point of P-256, uncompressed: 65 bytes, base64url.")
    auth = StrictChar(max_length=64, help_text="16 bytes, base64url.")


class WebPushSubscription(s.Serializer[Any]):
    """A subscription as `PushSubscription.toJSON()` gives it; `expirationTime` is not read."""

    endpoint = StrictChar(max_length=2048, help_text="https, to a public host.")
    keys = WebPushKeys()


class RegisterDeviceRequest(s.Serializer[Any]):
    device_id = StrictChar(max_length=128, help_text="Chosen by the app: letters, digits, `.`, `_`, `:`, `-`.")
    platform = s.ChoiceField(choices=DevicePlatform.choices)
    fcm_token = StrictChar(max_length=4096, required=False, help_text="The registration token of FCM.")
    web_push = WebPushSubscription(required=False)

    def validate_device_id(self, value: str) -> str:
        if not _DEVICE_ID.fullmatch(value):
            raise s.ValidationError("Letters, digits, `.`, `_`, `:` and `-` only.")
        return value

    def validate_fcm_token(self, value: str) -> str:
        if not _FCM_TOKEN.fullmatch(value):
            raise s.ValidationError("This is not a registration token of FCM.")
        return value

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("fcm_token" in attrs) == ("web_push" in attrs):
            raise s.ValidationError({"fcm_token": "Send either `fcm_token` or `web_push`."})
        return attrs


class DeviceObject(ResponseSerializer):
    """A device without its address: neither the token nor the endpoint."""

    id = s.IntegerField(source="public_id", help_text="A random number of at most 53 bits.")
    device_id = s.CharField()
    platform = s.ChoiceField(choices=DevicePlatform.choices)
    provider = s.ChoiceField(choices=Provider.choices, help_text="The service that delivers to the device.")
    created_at = Timestamp()
    updated_at = Timestamp(help_text="When its address was last registered.")


class DeviceResponse(Success):
    device = DeviceObject()


class WebPushKeyResponse(Success):
    key = s.CharField(help_text="`applicationServerKey` of `pushManager.subscribe`, base64url.")


class SendNotificationRequest(s.Serializer[Any]):
    title = StrictChar(max_length=200, default="", allow_blank=True, trim_whitespace=False)
    body = StrictChar(max_length=4000, default="", allow_blank=True, trim_whitespace=False)
    data = JSONObject(  # type: ignore[assignment]  # the name of the specification
        default=dict,
        help_text="Values that are not strings are sent as JSON. 4 KiB as JSON at most; what does not fit into 4,096 "
        "bytes with the title fails with `messaging/payload-size-limit-exceeded`.",
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if not attrs["title"].strip() and not attrs["body"].strip():
            raise s.ValidationError({"title": "Send a title, a body, or both."})
        return attrs


class SendErrorGroup(ResponseSerializer):
    code = s.CharField()
    message = s.CharField()
    count = s.IntegerField()


class SendNotificationResponse(Success):
    """`delivered` and `failed` sum up to `devices`."""

    delivered = s.IntegerField(help_text="The number of devices for which push providers accepted the message.")
    failed = s.IntegerField()
    devices = s.IntegerField(help_text="The number of devices that the account had when the request came.")
    errors = SendErrorGroup(  # type: ignore[assignment]  # the name of the specification
        many=True, required=False, help_text="Present only if some failed; the largest group first."
    )
