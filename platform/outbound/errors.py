"""The error of requests to places that users name."""

from __future__ import annotations

from typing import Final, Literal

Kind = Literal["refused_target", "name", "connect", "tls", "timeout", "protocol", "too_large"]

NOT_PUBLIC: Final = "The host does not lead to a public address."
_SENTENCES: Final[dict[Kind, str]] = {
    # One sentence for both: a user does not learn which names the operator's name servers know.
    "refused_target": NOT_PUBLIC,
    "name": NOT_PUBLIC,
    "connect": "The receiver could not be reached.",
    "tls": "The TLS connection to the receiver failed.",
    "timeout": "The receiver did not answer in time.",
    "protocol": "The receiver's answer was not valid HTTP.",
    "too_large": "The receiver's answer was too large.",
}


class OutboundError(Exception):
    """A request that was not made, or got no answer.

    `kind` is for the program and the log. `sentence` is for users: it is one of a fixed set, with nothing of what the
    receiver sent and nothing about the operator's network.
    """

    def __init__(self, kind: Kind, sentence: str = "") -> None:
        self.kind = kind
        self.sentence = sentence or _SENTENCES[kind]
        super().__init__(f"{kind}: {self.sentence}")
