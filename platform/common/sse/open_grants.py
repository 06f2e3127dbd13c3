"""Connections that a grant keeps open (event streams, WebSockets), and their end once the grant is revoked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

# Which of these grants are revoked, and why. Runs in a thread, once for everything that is open by such a grant.
RevocationCheck = Callable[[Sequence[Any]], dict[Any, str]]
# Runs a check in a thread.
RunCheck = Callable[[RevocationCheck, list[Any]], Awaitable[dict[Any, str]]]


@dataclass(eq=False, frozen=True, slots=True)
class OpenGrant:
    """`end` is called on the loop with a reason for the client; it may be called again until the grant is removed."""

    grant: Hashable
    revoked: RevocationCheck
    end: Callable[[str], None]


class OpenGrants:
    """The open grants of one event loop."""

    def __init__(self) -> None:
        self._open: set[OpenGrant] = set()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, opened: OpenGrant) -> None:
        self._open.add(opened)

    def remove(self, opened: OpenGrant) -> None:
        self._open.discard(opened)

    async def end_revoked(self, run: RunCheck) -> None:
        """End what is open by a revoked grant. Raise what the checks raise."""
        open_now = list(self._open)
        for check in {opened.revoked for opened in open_now}:
            checked = [opened for opened in open_now if opened.revoked is check]
            reasons = await run(check, list({opened.grant for opened in checked}))
            for opened in checked:
                if opened.grant in reasons and opened in self._open:
                    opened.end(reasons[opened.grant])
