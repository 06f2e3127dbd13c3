"""Web Push (RFC 8030): one message to the endpoint of a browser's subscription, encrypted for it (RFC 8291).

pywebpush and py-vapid encrypt and sign; the request itself goes through the guarded client, as a user names the place.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from django.utils import timezone
from py_vapid import Vapid02
from pywebpush import WebPusher

from common.outbound_targets import outbound_targets
from notifications.content import WEB_PUSH_BYTES, Content, TooLarge, compact_json, fitted
from notifications.sends import results
from notifications.sends.results import DELIVERED, Result, failure
from notifications.subscriptions import origin_of
from outbound import http
from outbound.http import Answer, OutboundError
from webhooks.schedule import retry_after_seconds

# How long a push service keeps a message for a browser that is away.
TTL_SECONDS: Final = 24 * 3600
# The life of the signed token; at most a day (RFC 8292), less the difference of the clocks.
TOKEN_SECONDS: Final = 12 * 3600
_STATUS_CODES: Final[Mapping[int, str]] = {
    HTTPStatus.BAD_REQUEST: results.INVALID,
    HTTPStatus.UNAUTHORIZED: results.THIRD_PARTY_AUTH,
    HTTPStatus.FORBIDDEN: results.THIRD_PARTY_AUTH,
    HTTPStatus.NOT_FOUND: results.NOT_REGISTERED,
    HTTPStatus.GONE: results.NOT_REGISTERED,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: results.TOO_LARGE,
}


class WebPushProvider:
    """The provider of Web Push, for any number of threads. `contact`: where push services reach the operator (`mailto:`
    or `https:`).
    """

    def __init__(self, private_key: str, contact: str, attempt_seconds: float) -> None:
        self._key = Vapid02.from_raw(private_key.encode())
        self._key.conf = {"no-strict": True}  # its own reading of contacts refuses valid ones
        self._contact = contact
        self._seconds = attempt_seconds

    def pause_name(self, address: Mapping[str, Any]) -> str:
        """Return the name of what a `Retry-After` of this device's push service pauses: its origin."""
        try:
            return origin_of(address["endpoint"])
        except OutboundError:  # it will not be sent to
            return ""

    def send(self, address: Mapping[str, Any], content: Content) -> Result:
        """Send one request. Nothing that an address or a push service can cause is raised."""
        try:
            clear = compact_json(fitted(content, WEB_PUSH_BYTES).as_json())
            answer = self._post(address, clear)
        except TooLarge:
            return failure(results.TOO_LARGE)
        except OutboundError as error:
            return _without_answer(error)
        return _result_of(answer)

    def _post(self, address: Mapping[str, Any], clear: bytes) -> Answer:
        keys = {"p256dh": address["p256dh"], "auth": address["auth"]}
        endpoint = address["endpoint"]
        pusher = WebPusher({"endpoint": endpoint, "keys": keys})
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Encoding": "aes128gcm",
            "TTL": str(TTL_SECONDS),
            "Urgency": "normal",
            **self._signature(endpoint),
        }
        body = pusher.encode(clear, content_encoding="aes128gcm")["body"]
        return http.post(
            endpoint, body=body, headers=headers, deadline_seconds=self._seconds, policy=outbound_targets()
        )

    def _signature(self, endpoint: str) -> dict[str, str]:
        claims = {"aud": origin_of(endpoint), "exp": int(time.time()) + TOKEN_SECONDS, "sub": self._contact}
        return {"Authorization": self._key.sign(claims)["Authorization"]}


def _without_answer(error: OutboundError) -> Result:
    if error.kind == "timeout":
        return failure(results.DEADLINE)
    if error.kind == "refused_target":
        return failure(results.INVALID, error.sentence)
    return failure(results.UNAVAILABLE)


def _result_of(answer: Answer) -> Result:
    if 200 <= answer.status < 300:
        return DELIVERED
    if answer.status >= 500 or answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        code = results.UNAVAILABLE if answer.status >= 500 else results.RATE_EXCEEDED
        return failure(code, retry_after=retry_after_seconds(answer.headers.get("retry-after"), timezone.now()))
    return failure(_STATUS_CODES.get(answer.status, results.UNKNOWN))
