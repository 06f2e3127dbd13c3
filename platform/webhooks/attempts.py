"""One attempt of a delivery: the request and what came of it. Uses no database, so that a thread of it costs none."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from common.outbound_targets import outbound_targets
from common.times import iso
from outbound import http
from outbound.http import Answer, OutboundError
from webhooks.schedule import retry_after_seconds
from webhooks.signatures import signature_headers

logger = logging.getLogger(__name__)

# The whole attempt: name, connection, request and answer.
ATTEMPT_SECONDS = 15.0
GONE = 410
ERROR_CHARACTERS = 500  # of the columns
USER_AGENT = "microvm-workspaces-webhooks/1"


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """The facts that an attempt needs. `number`: which attempt it is, from 1. `secrets`: see `signature_headers`.

    `began`: monotonic seconds, as its threads are shared out.
    """

    id: str
    claim: str
    number: int
    subscription_id: str
    account_id: str
    is_proven: bool
    url: str
    secrets: tuple[str, ...]
    event_id: str
    event_type: str
    event_at: datetime
    namespace: str
    data: Mapping[str, Any]
    began: float = 0.0
    claim_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt. `status_code` is None if no answer came, and `error` says why.

    `retry_after`: seconds that the receiver asked for, if it did.
    """

    delivery: ClaimedDelivery
    started_at: datetime
    duration_ms: int
    status_code: int | None
    error: str = ""
    retry_after: float | None = None

    @property
    def is_delivered(self) -> bool:
        return self.status_code is not None and 200 <= self.status_code < 300

    @property
    def is_gone(self) -> bool:
        """Return whether the receiver does not want anything any more."""
        return self.status_code == GONE


def event_body(delivery: ClaimedDelivery) -> bytes:
    """Return the body of every attempt: made of what is stored and never changes, so it has the same bytes each
    time.
    """
    body = {
        "id": delivery.event_id,
        "type": delivery.event_type,
        "event": delivery.event_type,
        "timestamp": iso(delivery.event_at),
        "namespace": delivery.namespace or None,
        "data": delivery.data,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def make_attempt(delivery: ClaimedDelivery) -> Outcome:
    """Send the event, once. Never raises: what goes wrong is the outcome. Takes no longer than ATTEMPT_SECONDS."""
    started_at, begun = timezone.now(), time.monotonic()
    status_code, error, retry_after = None, "", None
    try:
        answer = _event_send(delivery, started_at)
        status_code = answer.status
        retry_after = retry_after_seconds(answer.headers.get("retry-after"), timezone.now())
    except OutboundError as exc:
        error = exc.sentence
    except Exception:  # a fault of the platform must not cost the thread, or the delivery its next attempt
        logger.exception("attempt of %s", delivery.id)
        error = "The platform could not send the request."
    duration_ms = int((time.monotonic() - begun) * 1000)
    # The database stores no zero characters.
    return Outcome(
        delivery, started_at, duration_ms, status_code, error.replace("\0", "")[:ERROR_CHARACTERS], retry_after
    )


def _event_send(delivery: ClaimedDelivery, moment: datetime) -> Answer:
    body = event_body(delivery)
    signed = signature_headers(
        event_id=delivery.event_id, timestamp=int(moment.timestamp()), body=body, secrets=delivery.secrets
    )
    headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT, **signed}
    return http.post(
        delivery.url, body=body, headers=headers, deadline_seconds=ATTEMPT_SECONDS, policy=outbound_targets()
    )
