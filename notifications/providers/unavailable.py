"""In place of a provider that this instance cannot use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from notifications.content import Content
from notifications.sends.results import THIRD_PARTY_AUTH, Result, failure


class UnavailableProvider:
    """Every message fails, for a reason that is the operator's to remove."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def pause_name(self, address: Mapping[str, Any]) -> str:
        """Nothing is asked, so nothing pauses."""
        return ""

    def send(self, address: Mapping[str, Any], content: Content) -> Result:
        """The failure that names the reason."""
        return failure(THIRD_PARTY_AUTH, self._reason)
