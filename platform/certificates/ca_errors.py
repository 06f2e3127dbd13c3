"""Sentences for the owner of a name: one for each refusal or failure of a CA."""

from __future__ import annotations

import re
from typing import Final, Literal

from outbound.errors import Kind, OutboundError

LONGEST_SENTENCE: Final = 400
TOO_MANY_REQUESTS: Final = 429
# A fault is the CA's (it is away, overloaded, limits us) or the name's. After a fault of the CA a name never waits for
# long.
Fault = Literal["ca", "name", "limit"]
_SENTENCES: Final[dict[Kind, str]] = {
    "refused_target": "The CA sent an address that is not its own.",
    "name": "The CA's name could not be found.",
    "connect": "The CA could not be reached.",
    "tls": "The TLS connection to the CA failed.",
    "timeout": "The CA did not answer in time.",
    "protocol": "The CA's answer was not valid.",
    "too_large": "The CA's answer was too large.",
}
_SPACES = re.compile(r"\s+")
_PROBLEM = re.compile(r"[A-Za-z0-9]{1,40}")


class CaError(Exception):
    """`sentence` is for owners of names. `pause`: seconds that the CA asks to wait, None if it does not say."""

    def __init__(self, sentence: str, *, fault: Fault = "name", pause: float | None = None, problem: str = "") -> None:
        self.sentence = sentence
        self.fault = fault
        self.pause = pause
        self.problem = problem  # the last part of the problem's type, such as `rateLimited`
        super().__init__(sentence)


def ca_error_of(error: BaseException, status: int = 200, pause: float | None = None) -> CaError:
    """Return the CaError for anything that was raised while a CA was asked, whose last answer had this status."""
    if isinstance(error, OutboundError):
        return CaError(_SENTENCES[error.kind], fault="ca", pause=pause)
    # Not at the top: all processes know these errors, and one asks a CA.
    from acme import messages

    if not isinstance(error, messages.Error):
        if status == TOO_MANY_REQUESTS:
            return CaError("The CA limits the rate of requests.", fault="limit", pause=pause)
        if status >= 500:
            return CaError(f"The CA failed with status {status}.", fault="ca", pause=pause)
        return CaError("The CA's answer was not valid.", fault="ca", pause=pause)
    # A problem document's members are not checked by the library.
    detail = error.detail if isinstance(error.detail, str) else ""
    problem = str(error.typ or "").rpartition(":")[2]
    problem = problem if _PROBLEM.fullmatch(problem) else ""
    return CaError(_sentence(detail, problem), fault=_fault(problem), pause=pause, problem=problem)


def _sentence(detail: str, problem: str) -> str:
    """Return the CA's own words, cut and without characters that are not for showing."""
    shown = "".join(each if each.isprintable() else " " for each in detail)
    clean = _SPACES.sub(" ", shown).strip() or problem or "no reason was given"
    return f"The CA refused: {clean}"[:LONGEST_SENTENCE]


def _fault(problem: str) -> Fault:
    if problem == "rateLimited":
        return "limit"
    return "ca" if problem in {"serverInternal", "badNonce", ""} else "name"
