"""Files that a run of tests with machines alone need not read: reading all of them takes each process 13 s."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from pathlib import Path

from _pytest.mark.expression import Expression

MACHINES = ("vm", "host")
# Here tests are marked by parameters of fixtures, too.
_FOLDERS = (Path(__file__).with_name("vm"), Path(__file__).with_name("vmbackend"))
_MARK = re.compile(rf"\bmark\.({'|'.join(MACHINES)})\b")


@cache
def wants_machines_alone(expression: str) -> bool:
    """Whether `-m` with this expression chooses no test that is marked with none of MACHINES."""
    if not expression:
        return False
    others = sorted(set(re.findall(r"\w+", expression)) - {*MACHINES, "and", "or", "not"})
    chosen = Expression.compile(expression)
    for values in product((False, True), repeat=len(others)):
        marks = {name for name, value in zip(others, values, strict=True) if value}
        if chosen.evaluate(lambda name, marks=marks: name in marks):  # type: ignore[misc]
            return False
    return True


def may_have_machines(path: Path) -> bool:
    """Whether a test of this file may be marked with one of MACHINES."""
    return any(path.is_relative_to(folder) for folder in _FOLDERS) or bool(_MARK.search(path.read_text()))
