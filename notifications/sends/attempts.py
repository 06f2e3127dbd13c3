"""One attempt: one device, one request to its provider. Uses no database, so that a thread of it costs none."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from notifications.content import Content
from notifications.models import Device
from notifications.sends.fanout import Fanout
from notifications.sends.results import INTERNAL, Result, failure

logger = logging.getLogger(__name__)

# The whole request of Web Push; those of FCM have limits of their own (providers/fcm.py).
ATTEMPT_SECONDS = 10.0


class PushProvider(Protocol):
    """A provider, which delivers to one kind of device."""

    def send(self, address: Mapping[str, Any], content: Content) -> Result:
        """Send one message; return the outcome, whatever happens."""

    def pause_name(self, address: Mapping[str, Any]) -> str:
        """Return the provider that a `Retry-After` holds for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one device of a send. `pause_name`: see PushProvider."""

    fanout: Fanout
    device: Device
    result: Result
    pause_name: str
    seconds: float


def make_attempt(provider: PushProvider, fanout: Fanout, device: Device, pause_name: str) -> Outcome:
    """Send once. Never raises: what goes wrong is the outcome."""
    begun = time.monotonic()
    try:
        result = provider.send(device.address, fanout.content)
    except Exception as exc:  # a fault of the platform must not cost the thread; its text may hold an address
        logger.error("a notification of %s: %s", fanout.send.pk, type(exc).__name__)
        result = failure(INTERNAL)
    return Outcome(fanout, device, result, pause_name, time.monotonic() - begun)
