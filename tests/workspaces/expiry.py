"""When a lifecycle body says that the TTL expires."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime


def expires_at(body: Any) -> datetime:
    moment = parse_datetime(body["ttl_expires_at"])
    assert moment is not None
    return moment


def expires_in(body: Any, seconds: int) -> bool:
    return abs(expires_at(body) - timezone.now() - timedelta(seconds=seconds)) < timedelta(seconds=5)
