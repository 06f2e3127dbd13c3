"""Lines of `manage.py doctor` about notifications: which providers this instance can use."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cryptography.fernet import InvalidToken
from django.conf import settings

from notifications.models import Device, Provider
from notifications.vapid import vapid_private_key

NAME = "notifications"
FIX = "set PLATFORM_FCM_CREDENTIALS to the file of a service account (docs/operations.md, Notifications)"
KEY_FIX = "put the former PLATFORM_SECRET_KEY into PLATFORM_SECRET_KEY_FALLBACKS"
FIELDS = {"project_id", "client_email", "private_key", "token_uri"}
Line = tuple[str, bool, str, str]


def doctor_lines() -> Iterator[Line]:
    """Yield lines: name, whether it is as it should be, message, fix. Asks no provider. Raise DatabaseError."""
    yield _fcm_line()
    yield _web_push_line()


def _fcm_line() -> Line:
    problem = fcm_problem()
    if not problem:
        return NAME, True, "FCM has a service account", ""
    if settings.ENV.fcm_credentials is None and not Device.objects.filter(provider=Provider.FCM).exists():
        return NAME, True, f"FCM is off: {problem}", ""
    return NAME, False, f"devices of FCM get nothing: {problem}", FIX


def fcm_problem() -> str:
    """Return why FCM cannot be used; empty if its file is there and a service account's."""
    path = settings.ENV.fcm_credentials
    if path is None:
        return "PLATFORM_FCM_CREDENTIALS is not set"
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        return f"{path} cannot be read ({type(error).__name__})"
    missing = sorted(FIELDS - set(found if isinstance(found, dict) else ()))
    return f"{path} is not a service account: it does not have {', '.join(missing)}" if missing else ""


def _web_push_line() -> Line:
    try:
        vapid_private_key()
    except InvalidToken:
        return NAME, False, "the keys of Web Push cannot be read with PLATFORM_SECRET_KEY", KEY_FIX
    return NAME, True, "Web Push has its keys", ""
