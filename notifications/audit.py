"""The audit log of send tokens and devices. It never holds a token, an endpoint or a key."""

from __future__ import annotations

from accounts.audit import audit_entry, record_entry
from common.request_origin import NO_ORIGIN, RequestOrigin
from notifications.models import Device, NotificationEvent, SendToken


def subject_of_token(token: SendToken) -> str:
    """Return what entries about a token are found by."""
    return f"token {token.pk}"


def record_token(token: SendToken, action: str, *, actor: str, origin: RequestOrigin = NO_ORIGIN) -> None:
    """Write the entry in the caller's transaction, and a log line."""
    about, detail = subject_of_token(token), f"of {token.workspace_id}"
    record_entry(audit_entry(NotificationEvent, token.account_id, about, action, detail, actor=actor, origin=origin))


def record_device(
    device: Device, action: str, detail: str = "", *, actor: str = "system", origin: RequestOrigin = NO_ORIGIN
) -> None:
    """Record an action on a device."""
    about = f"device {device.device_id}"[:160]
    record_entry(audit_entry(NotificationEvent, device.account_id, about, action, detail, actor=actor, origin=origin))
