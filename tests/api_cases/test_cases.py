"""Each answer to a case that schemathesis makes of the OpenAPI document is one that it has, and none is a 5xx."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.api_cases.cases import Kind, kinds, send_cases
from tests.api_cases.near_examples import is_replaceable
from tests.api_cases.report import Progress
from tests.api_cases.stage import Stages
from tests.run_extent import campaign_after

SEED = int(os.environ.get("SEED", "1"))
PROGRESS = Path(os.environ.get("PROGRESS") or "/dev/null")
# In all of `make fuzz-api`.
CASES = int(os.environ.get("CASES", "0"))
GROUPS = 16 if CASES else 4
# Without it: of each kind, by its name.
FEW = {"valid": 2, "invalid": 2, "valid, near the example": 1, "invalid, near the example": 1, "elsewhere": 0}
# More than are needed: many kinds have a few cases only, and the others then have more. The rest of them ends at once.
ROUNDS = 5 + CASES // 4000 if CASES else 1


def is_first(kind: Kind) -> bool:
    """Near the example, or of what has none. In `make test` a quarter of them; the others are a campaign."""
    return kind.near or not is_replaceable(kind.operation)


CHOSEN = [None] if CASES else campaign_after(1, [True, False])
PARTS = range(GROUPS * ROUNDS) if CASES else campaign_after(1, range(GROUPS))


@pytest.mark.timeout(3600 if CASES else 900)
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("first", CHOSEN, ids={True: "first", False: "others", None: "all"}.__getitem__)
def test_every_answer_to_a_case_is_described(part: int, first: bool | None, request: pytest.FixtureRequest) -> None:
    progress = Progress(PROGRESS, CASES)
    if CASES and not progress.left():
        return
    request.getfixturevalue("host")
    number, group = SEED + part // GROUPS, part % GROUPS
    failed, stages = [], Stages()
    for kind in kinds()[group::GROUPS]:
        count = progress.count(kind, number, len(kinds())) if CASES else FEW[str(kind)]
        if not count or first not in (None, is_first(kind)):
            continue
        try:
            sent = send_cases(kind, stages, count, number)
        except Exception as exc:  # of the making of cases; the other kinds are sent
            failed.append(f"{kind.operation} ({kind}): {type(exc).__name__}: {exc}")
            continue
        progress.record(kind, number, count, sent)
        failed += [f"{kind.operation} ({kind}): {fault}" for fault in sent.faults.values()]
    stages.end()
    assert not failed, "\n\n".join(failed)
