"""Webhooks and their deliveries.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class CreateWebhookRequest(TypedDict):
    """Body, or a part of it, of `webhooks.create`."""

    url: str
    events: list[str]
    active: NotRequired[bool]
    description: NotRequired[str]
    namespace: NotRequired[str]
    secret: NotRequired[str]


class NewWebhookResponse(TypedDict):
    """Answer, or a part of one, of `webhooks.create`."""

    webhook: NewWebhook


class NewWebhook(TypedDict):
    """Answer, or a part of one, of `webhooks.create`."""

    id: int
    url: str
    events: list[str]
    active: bool
    description: str
    namespace: str | None
    last_triggered_at: str | None
    last_status_code: int | None
    disabled_reason: str | None
    created_at: str
    secret: str


class WebhookListResponse(TypedDict):
    """Answer, or a part of one, of `webhooks.list`."""

    webhooks: list[Webhook]


class Webhook(TypedDict):
    """Answer, or a part of one, of `webhooks.list`."""

    id: int
    url: str
    events: list[str]
    active: bool
    description: str
    namespace: str | None
    last_triggered_at: str | None
    last_status_code: int | None
    disabled_reason: str | None
    created_at: str


class WebhookEventsResponse(TypedDict):
    """Answer, or a part of one, of `webhooks.events`."""

    events: list[str]
    descriptions: dict[str, str]


class UpdateWebhookRequest(TypedDict):
    """Body, or a part of it, of `webhooks.update`."""

    url: NotRequired[str]
    events: NotRequired[list[str]]
    active: NotRequired[bool]
    description: NotRequired[str]


class WebhookResponse(TypedDict):
    """Answer, or a part of one, of `webhooks.update`."""

    webhook: Webhook


class WebhookDeliveryResponse(TypedDict):
    """Answer, or a part of one, of `webhooks.test`."""

    delivery: WebhookDelivery


class WebhookDelivery(TypedDict):
    """Answer, or a part of one, of `webhooks.test`."""

    id: str
    event_id: str
    event: str
    status: str
    attempts: int
    last_status_code: int | None
    last_error: str | None
    next_attempt_at: str | None
    created_at: str
    delivered_at: str | None


class RotateWebhookRequest(TypedDict):
    """Body, or a part of it, of `webhooks.rotate`."""

    grace_seconds: NotRequired[int]


class RotatedWebhookResponse(TypedDict):
    """Answer, or a part of one, of `webhooks.rotate`."""

    webhook: Webhook
    secret: str


class WebhookDeliveryList(TypedDict):
    """Answer, or a part of one, of `webhooks.deliveries`."""

    deliveries: list[WebhookDelivery]
    pagination: dict[str, Any]


class RedeliverWebhookRequest(TypedDict):
    """Body, or a part of it, of `webhooks.redeliver_since`."""

    since: str
    status: NotRequired[Literal["failed"]]


class RedeliveredResponse(TypedDict):
    """Answer, or a part of one, of `webhooks.redeliver_since`."""

    count: int
