"""Each answer to a case that schemathesis makes of the OpenAPI document is one that it has, and none is a 5xx."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import current_app
from django.conf import LazySettings
from hypothesis.errors import Unsatisfiable

from tests.api_cases.cases import Undescribed, modes, operations, send_cases
from tests.api_cases.report import record
from tests.api_cases.stage import Stages
from tests.assist.conftest import configured
from tests.assist.model_server import serving_model
from tests.fakehost import FakeHost

SEED = int(os.environ.get("SEED", "1"))
PROGRESS = os.environ.get("PROGRESS", "")
# In all of `make fuzz-api`, whose tests are smaller parts with seeds of their own; without it, two of each kind.
CASES = int(os.environ.get("CASES", "0"))
GROUPS = 4
# Operations with valid data, and with invalid: about so many. The document is not made while tests are collected.
KINDS = 300
CASES_EACH = 25 if CASES else 2
ROUNDS = max(1, round(CASES / (CASES_EACH * KINDS)))


@pytest.fixture
def host(vmhost: FakeHost, settings: LazySettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A vmhost, and a model for code assistance. The worker of the CDN is not there: uploads stay at 202."""
    send = current_app.send_task

    def send_task(name: str, *args: Any, **options: Any) -> None:
        if not name.startswith("cdn."):
            send(name, *args, **options)

    monkeypatch.setattr(current_app, "send_task", send_task)
    with serving_model() as made:
        asked = {"assist_url": made.url, "assist_model": "m", "assist_key": "k", "assist_calls_per_minute": 10_000}
        configured(settings, cdn_upload_wait_seconds=0.1, **asked)
        yield


@pytest.mark.parametrize("group", range(GROUPS))
@pytest.mark.parametrize("number", range(ROUNDS))
def test_every_answer_to_a_case_is_described(number: int, group: int, host: None) -> None:
    failed, stages = [], Stages()
    kinds = [(name, mode) for name in sorted(operations()) for mode in modes(name)]
    for name, mode in kinds[group::GROUPS]:
        try:
            counts = send_cases(name, stages, CASES_EACH, SEED + number, mode=mode)
        except Unsatisfiable:  # nothing that can be sent is invalid
            continue
        except Undescribed as exc:
            failed.append(f"{name} ({mode.value}): {exc}")
        else:
            if PROGRESS:
                record(Path(PROGRESS), name, mode.value, SEED + number, counts)
    stages.end()
    assert not failed, "\n\n".join(failed)
