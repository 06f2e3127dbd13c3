"""`/webhooks` (wire contract, section 7)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.response import Response
from rest_framework.throttling import BaseThrottle
from rest_framework.viewsets import GenericViewSet, ViewSet

from accounts.authentication import ApiRequest
from accounts.permissions import NAMESPACE_SCOPES
from common.openapi import MessageResponse, refused
from common.pagination import OffsetPagination
from common.request_origin import request_origin
from common.requests import validated, validated_query
from common.responses import respond
from common.throttling import RedisThrottle
from webhooks import redeliver, selectors, subscriptions
from webhooks import serializers as bodies
from webhooks.events import CATALOGUE
from webhooks.models import Delivery

OFF = {409: "`conflict`: the webhook is switched off"}


class SendThrottle(RedisThrottle):
    """The limit of requests that make the platform send to a receiver: tests and redeliveries together."""

    scope = "webhooks-send"
    limit = 60
    window_seconds = 60


class WriteThrottle(RedisThrottle):
    """The limit of requests that write activity and may look a name up for a second: create, update and rotate
    together.
    """

    scope = "webhooks-write"
    limit = 60
    window_seconds = 60


def _throttles_of(action: str | None) -> list[BaseThrottle]:
    return [SendThrottle()] if action in ("test", "redeliver") else []


class WebhookViewSet(ViewSet):
    """Webhooks, the places that events are sent to; account or namespace scope. A namespace's credential reaches only
    the webhooks of its namespace.
    """

    scopes = NAMESPACE_SCOPES
    later_throttles = dict.fromkeys(("create", "update", "rotate"), (WriteThrottle,))

    def get_throttles(self) -> list[BaseThrottle]:
        return _throttles_of(self.action)

    @extend_schema(
        parameters=[bodies.ListWebhooksQuery],
        responses={200: bodies.WebhookListResponse, **refused({404: "`not_found`: there is no such namespace"})},
    )
    def list(self, request: ApiRequest) -> Response:
        """The webhooks that the credential reaches, newest first; at most ten."""
        slug = validated_query(bodies.ListWebhooksQuery, request).get("namespace")
        namespace = selectors.requested_namespace(request.user, slug)
        return respond(bodies.WebhookListResponse, webhooks=selectors.visible_subscriptions(request.user, namespace))

    @extend_schema(
        request=bodies.CreateWebhookRequest,
        responses={201: bodies.NewWebhookResponse, **refused({409: "`webhook_limit_exceeded`: the account has ten"})},
    )
    def create(self, request: ApiRequest) -> Response:
        """Create a webhook. The secret that signs what is sent is in this response only.

        A credential of a namespace makes webhooks of that namespace. An account's webhooks are created, changed and
        rotated 60 times in a minute at most; requests that are refused for what they say themselves do not count.
        """
        data = validated(bodies.CreateWebhookRequest, request)
        WriteThrottle().allow_request(request, self)
        namespace = selectors.requested_namespace(request.user, data.pop("namespace", None))
        made = subscriptions.subscription_create(
            account=request.user.account,
            new=subscriptions.NewSubscription(namespace=namespace, **data),
            **_by(request),
        )
        return respond(bodies.NewWebhookResponse, 201, webhook=made)

    @extend_schema(responses=bodies.WebhookEventsResponse)
    def events(self, request: ApiRequest) -> Response:
        """The events that webhooks may subscribe to."""
        return respond(bodies.WebhookEventsResponse, events=[*CATALOGUE], descriptions=CATALOGUE)

    @extend_schema(request=bodies.UpdateWebhookRequest, responses=bodies.WebhookResponse)
    def update(self, request: ApiRequest, webhook_id: int) -> Response:
        """Change the given fields. Switched off, a webhook gets nothing, and pending deliveries become `disabled`."""
        found = selectors.get_subscription(request.user, webhook_id)
        changes = validated(bodies.UpdateWebhookRequest, request)
        WriteThrottle().allow_request(request, self)
        changed = subscriptions.subscription_update(subscription=found, changes=changes, **_by(request))
        return respond(bodies.WebhookResponse, webhook=changed)

    @extend_schema(request=None, responses={200: MessageResponse})
    def destroy(self, request: ApiRequest, webhook_id: int) -> Response:
        """Delete a webhook, with its deliveries. Nothing more is sent to it."""
        found = selectors.get_subscription(request.user, webhook_id)
        subscriptions.subscription_delete(subscription=found, **_by(request))
        return respond(MessageResponse, message="The webhook was deleted.")

    @extend_schema(request=None, responses={202: bodies.WebhookDeliveryResponse, **refused(OFF)})
    def test(self, request: ApiRequest, webhook_id: int) -> Response:
        """Send the event `webhook.test` to this webhook alone. What comes of it is in its deliveries.

        At most 60 tests and redeliveries of an account in a minute.
        """
        found = selectors.get_subscription(request.user, webhook_id)
        delivery = subscriptions.subscription_test(subscription=found)
        return respond(bodies.WebhookDeliveryResponse, 202, delivery=delivery)

    @extend_schema(request=bodies.RotateWebhookRequest, responses=bodies.RotatedWebhookResponse)
    def rotate(self, request: ApiRequest, webhook_id: int) -> Response:
        """Replace the secret. The former one signs as well until its grace ends; one before it no more."""
        found = selectors.get_subscription(request.user, webhook_id)
        seconds = validated(bodies.RotateWebhookRequest, request)["grace_seconds"]
        WriteThrottle().allow_request(request, self)
        rotated = subscriptions.subscription_rotate(subscription=found, grace_seconds=seconds, **_by(request))
        return respond(bodies.RotatedWebhookResponse, webhook=rotated, secret=rotated.secret)

    @extend_schema(request=bodies.RedeliverWebhookRequest, responses={202: bodies.RedeliveredResponse, **refused(OFF)})
    def redeliver(self, request: ApiRequest, webhook_id: int) -> Response:
        """Send the failed deliveries of events since a time again, with the same event ids, the oldest first.

        At most 1,000 in one request; `count` says how many, and another request continues.
        """
        found = selectors.get_subscription(request.user, webhook_id)
        since = validated(bodies.RedeliverWebhookRequest, request)["since"]
        return respond(bodies.RedeliveredResponse, 202, count=redeliver.failed_redeliver(found, since=since))


class DeliveryPagination(OffsetPagination):
    results_field = "deliveries"


class WebhookDeliveryViewSet(GenericViewSet[Any]):
    """Deliveries to a webhook, for 30 days; account or namespace scope."""

    scopes = NAMESPACE_SCOPES
    queryset = Delivery.objects.all()
    serializer_class = bodies.WebhookDelivery
    pagination_class = DeliveryPagination

    def get_throttles(self) -> list[BaseThrottle]:
        return _throttles_of(self.action)

    @extend_schema(parameters=[bodies.ListDeliveriesQuery])
    def list(self, request: ApiRequest, webhook_id: int) -> Response:
        """The deliveries of a webhook, newest first."""
        found = selectors.get_subscription(request.user, webhook_id)
        filters = validated_query(bodies.ListDeliveriesQuery, request)
        page = self.paginate_queryset(selectors.listed_deliveries(found, **filters))
        return self.get_paginated_response(bodies.WebhookDelivery(page, many=True).data)

    @extend_schema(request=None, responses={202: bodies.WebhookDeliveryResponse, **refused(OFF)})
    def redeliver(self, request: ApiRequest, delivery_id: str) -> Response:
        """Send an event again, with the same event id. Idempotent: one that is pending stays as it is."""
        delivery = selectors.get_delivery(request.user, delivery_id)
        return respond(bodies.WebhookDeliveryResponse, 202, delivery=redeliver.delivery_redeliver(delivery))


def _by(request: ApiRequest) -> dict[str, Any]:
    """Return the actor and origin for the audit entry."""
    return {"actor": request.user.label, "origin": request_origin(request._request)}
