"""Webhooks and their deliveries.

Written by `make client`.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Literal, Unpack

from microvm.addresses import quoted
from microvm.sync.group import Group
from microvm.types.webhooks import (
    CreateWebhookRequest,
    NewWebhookResponse,
    RedeliveredResponse,
    RedeliverWebhookRequest,
    RotatedWebhookResponse,
    RotateWebhookRequest,
    UpdateWebhookRequest,
    Webhook,
    WebhookDelivery,
)


class WebhookRoutes(Group):
    """Webhooks and their deliveries."""

    def create(self, **body: Unpack[CreateWebhookRequest]) -> NewWebhookResponse:
        """Create a webhook. The secret that signs what is sent is in this response only."""
        answer: NewWebhookResponse = self._call("POST", "/webhooks", body=body)
        return answer

    def list(self, *, namespace: str | None = None) -> builtins.list[Webhook]:
        """The webhooks that the credential reaches, newest first; at most ten."""
        answer: builtins.list[Webhook] = self._call("GET", "/webhooks", query={"namespace": namespace}, part="webhooks")
        return answer

    def events(self) -> builtins.list[str]:
        """The events that webhooks may subscribe to."""
        answer: builtins.list[str] = self._call("GET", "/webhooks/events", part="events")
        return answer

    def update(self, webhook: int, **body: Unpack[UpdateWebhookRequest]) -> Webhook:
        """Change the given fields. Switched off, a webhook gets nothing, and pending deliveries become `disabled`."""
        answer: Webhook = self._call("PUT", f"/webhooks/{quoted(webhook)}", body=body, part="webhook")
        return answer

    def delete(self, webhook: int) -> None:
        """Delete a webhook, with its deliveries. Nothing more is sent to it."""
        self._delete(f"/webhooks/{quoted(webhook)}")

    def test(self, webhook: int) -> WebhookDelivery:
        """Send the event `webhook.test` to this webhook alone. What comes of it is in its deliveries."""
        answer: WebhookDelivery = self._call("POST", f"/webhooks/{quoted(webhook)}/test", part="delivery")
        return answer

    def rotate(self, webhook: int, **body: Unpack[RotateWebhookRequest]) -> RotatedWebhookResponse:
        """Replace the secret. The former one signs as well until its grace ends; one before it no more."""
        answer: RotatedWebhookResponse = self._call("POST", f"/webhooks/{quoted(webhook)}/rotate", body=body)
        return answer

    def deliveries(
        self,
        webhook: int,
        *,
        status: Literal["pending", "delivered", "failed", "disabled"] | None = None,
        page_size: int = 100,
    ) -> Iterator[WebhookDelivery]:
        """The deliveries of a webhook, newest first."""
        return self._offsets(f"/webhooks/{quoted(webhook)}/deliveries", "deliveries", {"status": status}, page_size)

    def redeliver(self, delivery: str) -> WebhookDelivery:
        """Send an event again, with the same event id. Idempotent: one that is pending stays as it is."""
        answer: WebhookDelivery = self._call(
            "POST", f"/webhooks/deliveries/{quoted(delivery)}/redeliver", part="delivery", again=True
        )
        return answer

    def redeliver_since(self, webhook: int, **body: Unpack[RedeliverWebhookRequest]) -> RedeliveredResponse:
        """Send the failed deliveries of events since a time again, with the same event ids, the oldest first."""
        answer: RedeliveredResponse = self._call("POST", f"/webhooks/{quoted(webhook)}/redeliver", body=body)
        return answer
