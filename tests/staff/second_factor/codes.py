"""Codes of a user's authenticator, and the page that takes them."""

from __future__ import annotations

import base64
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django_otp.oath import totp

from staff.models import Authenticator

VERIFY, SETUP = "/admin/second-factor/", "/admin/second-factor/setup/"


def code_of(secret: str, steps: int = 0) -> str:
    key = base64.b32decode(secret)
    return f"{totp(key, t0=-30 * steps):06d}"


def forget_last(user: User) -> None:
    """As if time had passed since the newest code and the newest failure."""
    Authenticator.objects.filter(user=user).update(
        last_step=-1, throttling_failure_count=0, throttling_failure_timestamp=None
    )


def secret_of(user: User) -> str:
    return str(Authenticator.objects.get(user=user).secret)


def send(client: Client, code: str, **more: Any) -> Any:
    return client.post(VERIFY, {"code": code, **more})
