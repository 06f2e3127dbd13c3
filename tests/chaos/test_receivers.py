"""What a receiver of a chaos run takes, refuses and reports."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.chaos import receivers
from tests.chaos.ledger import WORDS, Arrived, Ledger
from tests.chaos.receivers import Receivers, receivers_of
from tests.chaos.report import Report
from webhooks.signatures import signature_headers

OWN, OTHER = WORDS
EVENT = {"id": "evt_1", "type": "namespace.suspended", "data": {"namespace": "team"}}


@pytest.fixture
def report() -> Report:
    return Report(out=io.StringIO())


@pytest.fixture
def there(report: Report) -> Iterator[Receivers]:
    with receivers_of(Ledger(), report, seed=1) as made:
        yield made


def answers(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    monkeypatch.setattr(receivers, "FIRST_ANSWERS", {first: 1})


def send(there: Receivers, event: dict[str, Any], *, secret: str = "") -> int:
    """The status; 0: no answer."""
    body = json.dumps(event).encode()
    at = int(time.time())
    headers = signature_headers(
        event_id=str(event["id"]), timestamp=at, body=body, secrets=[secret or there.secret(OWN)]
    )
    try:
        return httpx.post(there.url(OWN), content=body, headers=headers, trust_env=False).status_code
    except httpx.TransportError:
        return 0


@pytest.mark.parametrize(
    ("first", "status"), [("at once", 204), ("refused", 500), ("asked to wait", 503), ("closed", 0)]
)
def test_the_second_request_with_an_event_is_taken(
    there: Receivers, report: Report, monkeypatch: pytest.MonkeyPatch, first: str, status: int
) -> None:
    answers(monkeypatch, first)
    assert send(there, EVENT) == status
    assert bool(there._ledger.arrived) is (status == 204)
    assert send(there, EVENT) == 204
    assert there._ledger.arrived == {"evt_1": Arrived(OWN, "evt_1", "namespace.suspended", "team")}
    assert report.violations == []


@pytest.mark.parametrize(
    ("event", "secret", "invariant"),
    [
        (EVENT, "whsec_another", "every event is signed"),
        ({**EVENT, "data": {"namespace": f"{OTHER}-1"}}, "", "an event goes to its own account alone"),
    ],
)
def test_what_is_wrong_with_an_event_is_a_violation(
    there: Receivers, report: Report, event: dict[str, Any], secret: str, invariant: str
) -> None:
    send(there, event, secret=secret)
    assert list(report.found) == [invariant]
