"""Files that a run of tests with some marks alone need not read: reading all of them takes each process 13 s."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path

from _pytest.mark.expression import Expression

MACHINES = ("vm", "host")
CAMPAIGNS = ("campaign",)
# Here tests are marked by parameters of fixtures, too.
_MACHINE_FOLDERS = (Path(__file__).with_name("vm"), Path(__file__).with_name("vmbackend"))
_TEXTS = {
    MACHINES: re.compile(rf"\bmark\.({'|'.join(MACHINES)})\b"),
    CAMPAIGNS: re.compile(r"\bmark\.campaign\b|\bcampaign_after\("),
}


@cache
def wants_alone(marks: tuple[str, ...], expression: str) -> bool:
    """Whether `-m` with this expression chooses no test that has none of these marks."""
    if not expression:
        return False
    others = sorted(set(re.findall(r"\w+", expression)) - {*marks, "and", "or", "not"})
    chosen = Expression.compile(expression)
    for values in product((False, True), repeat=len(others)):
        given = {name for name, value in zip(others, values, strict=True) if value}
        if chosen.evaluate(lambda name, given=given: name in given):  # type: ignore[misc]
            return False
    return True


def may_have(marks: tuple[str, ...], path: Path) -> bool:
    """Whether a test of this file may have one of these marks."""
    if marks == MACHINES and any(path.is_relative_to(folder) for folder in _MACHINE_FOLDERS):
        return True
    return bool(_TEXTS[marks].search(path.read_text()))


def is_read(path: Path, expression: str) -> bool:
    """Whether a test of this file may be chosen by `-m` with this expression."""
    return all(may_have(marks, path) for marks in _TEXTS if wants_alone(marks, expression))
