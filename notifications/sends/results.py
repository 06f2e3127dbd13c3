"""Results of devices, and the groups of failures that a request is answered with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

NOT_REGISTERED = "messaging/registration-token-not-registered"
THIRD_PARTY_AUTH = "messaging/third-party-auth-error"
MISMATCHED = "messaging/mismatched-credential"
RATE_EXCEEDED = "messaging/message-rate-exceeded"
TOO_LARGE = "messaging/payload-size-limit-exceeded"
INVALID = "messaging/invalid-argument"
UNAVAILABLE = "messaging/server-unavailable"
INTERNAL = "messaging/internal-error"
UNKNOWN = "messaging/unknown-error"
DEADLINE = "messaging/deadline-exceeded"

# One sentence for each: nothing that a provider wrote reaches the sender.
SENTENCES = {
    NOT_REGISTERED: "The device is no longer registered with its push provider, and was removed.",
    THIRD_PARTY_AUTH: "The push provider refused the credentials of this service.",
    MISMATCHED: "The device is registered for another sender than this service.",
    RATE_EXCEEDED: "The push provider does not accept more messages for now.",
    TOO_LARGE: "The notification is larger than the push provider takes, even without its body.",
    INVALID: "The push provider refused the message or the device's address as invalid.",
    UNAVAILABLE: "The push provider cannot be reached, or failed.",
    INTERNAL: "The platform could not send the message.",
    UNKNOWN: "The push provider's answer was not understood.",
    DEADLINE: "The push provider had not answered in time; the message may still arrive.",
}
REMOVED = "The device was removed while the notification was sent."


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one device. `code` is empty if its provider accepted the message.

    `is_gone`: the provider does not know its address any more. `retry_after`: seconds that the provider wants to be
    left alone.
    """

    code: str = ""
    message: str = ""
    is_gone: bool = False
    retry_after: float | None = None


DELIVERED = Result()


def failure(code: str, message: str = "", *, retry_after: float | None = None) -> Result:
    """Return a failure, with the sentence of the code if no message is given."""
    return Result(code, message or SENTENCES[code], code == NOT_REGISTERED, retry_after)


@dataclass(slots=True)
class Tally:
    """Counts of a send. `groups`: how often each code with its message."""

    delivered: int = 0
    groups: Counter[tuple[str, str]] = field(default_factory=Counter)

    @classmethod
    def of(cls, delivered: int, errors: Iterable[dict[str, Any]]) -> Tally:
        """Return the tally as it was stored."""
        return cls(delivered, Counter({(each["code"], each["message"]): each["count"] for each in errors}))

    @property
    def failed(self) -> int:
        return self.groups.total()

    @property
    def counted(self) -> int:
        return self.delivered + self.failed

    def add(self, result: Result, count: int = 1) -> None:
        if result.code:
            self.groups[result.code, result.message] += count
        else:
            self.delivered += count

    def errors(self) -> list[dict[str, Any]]:
        """Return the groups, the largest first."""
        return [
            {"code": code, "message": message, "count": count}
            for (code, message), count in sorted(self.groups.items(), key=lambda item: (-item[1], item[0]))
            if count
        ]
