"""The diagram of docs/architecture.md has exactly the transitions of `workspaces.states.ALLOWED`."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

from django.conf import settings

from workspaces.states import ALLOWED, Status

EDGE = re.compile(r"(\w+) -->(?:\|[^|]*\|)? (\w+)")


def diagram() -> list[str]:
    text = (Path(settings.ROOT) / "docs" / "architecture.md").read_text()
    found = re.search(r"^```mermaid\nflowchart LR\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return [line.strip() for line in found[1].splitlines()]


def frames(lines: list[str]) -> dict[str, set[str]]:
    """Each frame (subgraph) with the states in it, those of inner frames included."""
    found: dict[str, set[str]] = {}
    around: list[str] = []
    for line in lines:
        if line.startswith("subgraph "):
            around.append(line.split()[1])
            found[around[-1]] = set()
        elif line == "end":
            around.pop()
        elif "-->" not in line:
            for frame in around:
                found[frame].add(line)
    return found


def drawn() -> list[tuple[str, str]]:
    """Every transition that is drawn; an edge of a frame is one of each state in it."""
    lines = diagram()
    members = frames(lines)
    ends = [found.groups() for line in lines if (found := EDGE.fullmatch(line))]
    assert len(ends) == sum("-->" in line for line in lines)
    return [pair for start, end in ends for pair in product(members.get(start, {start}), members.get(end, {end}))]


def test_the_frames_are_the_groups_of_states() -> None:
    from workspaces import states

    found = frames(diagram())
    assert found["any"] == set(Status)
    assert found["machine"] == states.HAS_MACHINE
    assert found["operation"] == states._POWER


def test_no_transition_is_missing_or_made_up() -> None:
    allowed = {(start.value, end.value) for end, starts in ALLOWED.items() for start in starts}
    edges = set(drawn())
    assert sorted(allowed - edges) == [], "missing in the diagram"
    assert sorted(edges - allowed) == [], "not allowed by states.ALLOWED"
