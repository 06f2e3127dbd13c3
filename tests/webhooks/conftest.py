"""A receiver that the operator lists, and what sends to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.conf import LazySettings

from tests.webhooks.receiver import Receiver, Sending, receiving
from tests.webhooks.sending import permitted


@pytest.fixture
def receiver(settings: LazySettings) -> Iterator[Receiver]:
    with receiving() as made, permitted(settings, made):
        yield made


@pytest.fixture
def hooks() -> Iterator[Sending]:
    made = Sending()
    yield made
    made.close()
