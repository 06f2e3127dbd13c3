"""Access tokens instead of the client's secret."""

from __future__ import annotations

from time import monotonic

from microvm.credentials import AccessTokens, bearer_header
from microvm.retries import Sending
from microvm.sync.transport import Transport
from microvm.sync.waiting import Lock

# A token is renewed when this part of its life is left, so that none ends on the way.
RENEWED_AT = 0.2


class TokenAuth:
    """Issued by the first request, and again before each one ends. `issuer` carries the client's secret.

    Callers at once cause one issue. `headers` raises ApiError where the service refuses, ConnectionFailed where no
    answer came.
    """

    def __init__(self, issuer: Transport, tokens: AccessTokens) -> None:
        # A second token that is issued after a lost answer has no effect.
        self._sending = Sending("POST", "/tokens", body=tokens.body(), is_idempotent=True)
        self._issuer = issuer
        self._lock = Lock()
        self._token = ""
        self._renewal = 0.0

    def headers(self) -> dict[str, str]:
        with self._lock:
            if not self._token or monotonic() >= self._renewal:
                begun = monotonic()
                answer = self._issuer.call(self._sending)
                self._token = str(answer["token"])
                self._renewal = begun + answer["ttl"] * (1 - RENEWED_AT)
            return bearer_header(self._token)

    def is_renewable(self, refused: dict[str, str]) -> bool:
        if self._token and refused == bearer_header(self._token):
            self._token = ""
        return True
