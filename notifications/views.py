"""`/notifications` (specification, Notifications; wire contract, section 6)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet, ViewSet

from accounts.authentication import ApiRequest
from accounts.permissions import ACCOUNT_ONLY
from common.openapi import MessageResponse, refused
from common.pagination import OffsetPagination
from common.request_origin import request_origin
from common.requests import validated, validated_query
from common.responses import ok, respond
from common.throttling import RedisThrottle
from notifications import devices, selectors, tokens
from notifications import serializers as bodies
from notifications.authentication import SendRequest, SendThrottle, SendTokenAuthentication, SendTokenPermission
from notifications.content import content_of
from notifications.models import Device, Provider, SendToken
from notifications.sends.requests import send_and_wait
from notifications.subscriptions import subscription_address
from notifications.vapid import vapid_public_key
from workspaces.selectors import get_workspace


class SendTokenPagination(OffsetPagination):
    results_field = "tokens"
    default_limit = 100
    max_limit = 1000


class DevicePagination(SendTokenPagination):
    results_field = "devices"


class RegisterThrottle(RedisThrottle):
    """The limit of registrations, each of which may look a name up for a second. An app registers once in a while."""

    scope = "notifications-register"
    limit = 600
    window_seconds = 60


class SendTokenViewSet(GenericViewSet[Any]):
    """Tokens with which code in a workspace sends; within the scope of the credential."""

    queryset = SendToken.objects.all()
    serializer_class = bodies.SendTokenObject
    pagination_class = SendTokenPagination

    @extend_schema(parameters=[bodies.ListTokensQuery])
    def list(self, request: ApiRequest) -> Response:
        """The send tokens of the workspaces that the credential reaches, newest first; revoked ones, too."""
        filters = validated_query(bodies.ListTokensQuery, request)
        page = self.paginate_queryset(selectors.visible_tokens(request.user, **filters))
        return self.get_paginated_response(bodies.SendTokenObject(page, many=True).data)

    @extend_schema(
        request=bodies.CreateSendTokenRequest,
        responses={
            201: bodies.NewSendTokenResponse,
            **refused({409: "`token_limit_exceeded`: the workspace has 100"}),
        },
    )
    def create(self, request: ApiRequest) -> Response:
        """Create a send token of a workspace. It is in this response only, and ends with the workspace."""
        data = validated(bodies.CreateSendTokenRequest, request)
        workspace = get_workspace(request.user, data["workspace_id"])
        made, secret = tokens.token_create(
            workspace=workspace, name=data["name"], metadata=data["metadata"], **_by(request)
        )
        shown = bodies.SendTokenObject(made).data | {"token": secret}
        return respond(bodies.NewSendTokenResponse, 201, token=shown)

    @extend_schema(request=None, responses=bodies.SendTokenResponse)
    def revoke(self, request: ApiRequest, token_id: str) -> Response:
        """Refuse sends with this token from now on. Idempotent; the record is kept."""
        found = selectors.get_token(request.user, token_id)
        return respond(bodies.SendTokenResponse, token=tokens.token_revoke(token=found, **_by(request)))

    @extend_schema(request=None, responses={200: MessageResponse})
    def destroy(self, request: ApiRequest, token_id: str) -> Response:
        """Remove a send token, whether or not it is revoked."""
        tokens.token_delete(token=selectors.get_token(request.user, token_id), **_by(request))
        return ok(message="The send token was deleted.")


class DeviceViewSet(GenericViewSet[Any]):
    """Devices that get the notifications of an account; account scope, as a device gets those of all its workspaces."""

    scopes = ACCOUNT_ONLY
    queryset = Device.objects.all()
    serializer_class = bodies.DeviceObject
    pagination_class = DevicePagination

    @extend_schema(parameters=[])
    def list(self, request: ApiRequest) -> Response:
        """The devices of the account, newest first; at most 1,000."""
        page = self.paginate_queryset(selectors.visible_devices(request.user))
        return self.get_paginated_response(bodies.DeviceObject(page, many=True).data)

    @extend_schema(
        request=bodies.RegisterDeviceRequest,
        responses={
            201: bodies.DeviceResponse,
            200: bodies.DeviceResponse,
            **refused({409: "`device_limit_exceeded`: the account has 1,000"}),
        },
    )
    def create(self, request: ApiRequest) -> Response:
        """Register a device, or give a registered one its new address (200).

        There is one device for each `device_id`, and one for each address: an app that has chosen another id takes its
        former one's place.
        """
        data = validated(bodies.RegisterDeviceRequest, request)
        RegisterThrottle().allow_request(request, self)
        made, is_new = devices.device_register(
            account=request.user.account,
            device_id=data["device_id"],
            platform=data["platform"],
            **_address(data),
            **_by(request),
        )
        return respond(bodies.DeviceResponse, 201 if is_new else 200, device=made)

    @extend_schema(request=None, responses={200: MessageResponse})
    def destroy(self, request: ApiRequest, device_id: str) -> Response:
        """Remove a device, by its `device_id` or its `id`.

        If the `device_id` of one device is the `id` of another one, the first is meant.
        """
        devices.device_delete(device=selectors.get_device(request.user, device_id), **_by(request))
        return ok(message="The device was removed.")


class WebPushKeyViewSet(ViewSet):
    """The key that browsers subscribe with."""

    @extend_schema(responses=bodies.WebPushKeyResponse)
    def retrieve(self, request: ApiRequest) -> Response:
        """The public key of this service for Web Push. It never changes: subscriptions are bound to it."""
        return respond(bodies.WebPushKeyResponse, key=vapid_public_key())


class SendViewSet(ViewSet):
    """Sending, by code in a workspace."""

    authentication_classes = [SendTokenAuthentication]
    permission_classes = [SendTokenPermission]
    throttle_classes = [SendThrottle]

    @extend_schema(
        request=bodies.SendNotificationRequest,
        responses={
            200: bodies.SendNotificationResponse,
            **refused(
                {
                    401: "`unauthorized`: the token is missing, unknown or revoked, or its workspace has ended",
                    429: "`rate_limited`: more than 60 requests in a minute with this token, or too many of the account"
                    " are still being sent; nothing was sent",
                }
            ),
        },
    )
    def create(self, request: SendRequest) -> Response:
        """Send a notification to all devices of the token's owner.

        The answer comes when each device has an outcome, after 10 s at the latest: what has none by then counts as
        failed with `messaging/deadline-exceeded`, and still goes on for up to a minute. A device never gets a
        notification twice. `body` is shortened to what a push provider takes. `workspace_id` and `channel` (the token's
        `metadata.channel`, else `workspace`) are added to `data`, and replace what it has of these names. Devices that
        push providers know no more are removed.
        """
        data = validated(bodies.SendNotificationRequest, request)
        token = request.user.token
        content = content_of(**data, workspace_id=token.workspace_id, metadata=token.metadata)
        count, tally = send_and_wait(request.user, content)
        shown = {"delivered": tally.delivered, "failed": tally.failed, "devices": count}
        return respond(bodies.SendNotificationResponse, errors=tally.errors() or None, **shown)


def _address(data: dict[str, Any]) -> dict[str, Any]:
    """Return provider and address of a registration. Raise ValidationError."""
    if "fcm_token" in data:
        return {"provider": Provider.FCM, "address": {"fcm_token": data["fcm_token"]}}
    given = data["web_push"]
    return {"provider": Provider.WEB_PUSH, "address": subscription_address(endpoint=given["endpoint"], **given["keys"])}


def _by(request: ApiRequest) -> dict[str, Any]:
    """Return the actor and origin for the audit entry."""
    return {"actor": request.user.label, "origin": request_origin(request._request)}
