"""When a delivery is attempted again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from django.conf import LazySettings
from hypothesis import given
from hypothesis import strategies as st

from webhooks.schedule import ATTEMPTS, JITTER, LONGEST_RETRY_AFTER, retry_after_seconds, retry_wait

HOUR = 3600.0
WAITS = [5, 300, 1800, *(hours * HOUR for hours in (2, 5, 10, 14, 20, 24))]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("attempts", "planned"), list(enumerate(WAITS, 1)))
def test_waits_grow_with_jitter_of_a_fifth(attempts: int, planned: float) -> None:
    waits = [retry_wait(attempts) or 0 for _ in range(200)]
    assert min(waits) >= planned
    assert max(waits) <= planned * (1 + JITTER)
    assert max(waits) - min(waits) > planned * JITTER / 2


def test_there_are_ten_attempts_over_more_than_three_days() -> None:
    assert ATTEMPTS == 10
    assert retry_wait(ATTEMPTS) is None
    assert sum(retry_wait(attempts) or 0 for attempts in range(1, ATTEMPTS)) > 75 * HOUR


def test_the_first_wait_is_a_setting(settings: LazySettings) -> None:
    settings.ENV = settings.ENV.model_copy(update={"webhook_retry_seconds": 60.0})
    assert 60 <= (retry_wait(1) or 0) <= 72
    assert 300 <= (retry_wait(2) or 0) <= 360


def test_a_receiver_may_ask_for_a_longer_wait_up_to_an_hour() -> None:
    assert 100 <= (retry_wait(1, retry_after=100) or 0) <= 120
    assert retry_wait(1, retry_after=HOUR) == LONGEST_RETRY_AFTER
    assert retry_wait(1, retry_after=1e12) == LONGEST_RETRY_AFTER


def test_a_receiver_cannot_ask_for_a_shorter_wait_or_more_attempts() -> None:
    assert (retry_wait(2, retry_after=1) or 0) >= 300
    assert (retry_wait(4, retry_after=0) or 0) >= 2 * HOUR
    assert retry_wait(ATTEMPTS, retry_after=10) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("0", 0),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0),
        ("Sunday, 01-Mar-26 12:01:30 GMT", 90),
        ("Sun Mar  1 12:01:30 2026", 90),
        (None, None),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("Sun, 99 Mar 2026 12:00:00 GMT", None),
    ],
)
def test_a_retry_after_header_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, NOW) == seconds


@given(st.text(max_size=60) | st.from_regex(r"[0-9]{1,400}", fullmatch=True))
def test_no_retry_after_header_is_an_error(header: str) -> None:
    asked = retry_after_seconds(header, NOW)
    assert asked is None or asked >= 0
    wait = retry_wait(1, retry_after=asked)
    assert wait is not None
    assert wait <= LONGEST_RETRY_AFTER
