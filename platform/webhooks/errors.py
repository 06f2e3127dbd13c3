"""Errors of the webhook routes."""

from __future__ import annotations

from common.errors import DomainError


class WebhookLimitExceeded(DomainError):
    """Details: `current` and `max`."""

    code = "webhook_limit_exceeded"
    status = 409
    message = "The account has reached its limit of webhooks."
