"""Errors of notifications."""

from __future__ import annotations

from common.errors import DomainError


class DeviceLimitExceeded(DomainError):
    """`details`: `current` and `max`."""

    code = "device_limit_exceeded"
    status = 409
    message = "The account has reached its limit of devices; remove some of them first."


class TokenLimitExceeded(DomainError):
    """`details`: `current` and `max`."""

    code = "token_limit_exceeded"
    status = 409
    message = "The workspace has reached its limit of send tokens; delete some of them first."
