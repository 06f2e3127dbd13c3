"""Each answer to a case that schemathesis makes of the OpenAPI document is one that it has, and none is a 5xx."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis.errors import Unsatisfiable

from tests.api_cases.cases import Undescribed, modes, operations, send_cases
from tests.api_cases.report import record
from tests.api_cases.stage import Stages

SEED = int(os.environ.get("SEED", "1"))
PROGRESS = os.environ.get("PROGRESS", "")
# In all of `make fuzz-api`, whose tests are smaller parts with seeds of their own; without it, two of each kind.
CASES = int(os.environ.get("CASES", "0"))
GROUPS = 16 if CASES else 4
# Operations with valid data, and with invalid: about so many. The document is not made while tests are collected.
KINDS = 300
CASES_EACH = 25 if CASES else 2
ROUNDS = max(1, round(CASES / (CASES_EACH * KINDS)))


@pytest.mark.timeout(3600 if CASES else 300)
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
