"""The stand-in for a provider that this instance cannot use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from notifications.content import Content
from notifications.sends.results import THIRD_PARTY_AUTH, Result, failure


class UnavailableProvider:
    """A provider with which every message fails, for a reason that the operator can remove."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def pause_name(self, address: Mapping[str, Any]) -> str:
        """Return an empty name: no provider is asked, so nothing pauses."""
        return ""

    def send(self, address: Mapping[str, Any], content: Content) -> Result:
        """Return the failure that names the reason."""
        return failure(THIRD_PARTY_AUTH, self._reason)
