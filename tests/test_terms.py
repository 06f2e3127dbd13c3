"""Terms that were given up (CONTRIBUTING.md, Glossary) do not come back in code, tests and documents."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from django.conf import settings

ROOT = Path(settings.ROOT)
# Texts of others, generated files, the renaming migrations, and the places that name the old terms on purpose.
LEFT_OUT = re.compile(
    r"(^|/)(migrations|static)/|\.lock$|^LICENSE$|^CHANGELOG\.md$|^tests/test_(terms|names)\.py$|\.(png|svg|ico|woff2?|patch)$"
)

UNTRACKED = {"var", "dist", "__pycache__"}


@dataclass(frozen=True)
class Term:
    """A regular expression for the old term, what is said instead, and the folders that are not searched for it."""

    old: str
    new: str
    not_in: tuple[str, ...] = ()


TERMS = [
    Term(r"(?i)doorbell|\bbells?\b", "wake-up, pub/sub channel"),
    Term(r"\brung(_at)?\b", "notified, notified_at"),
    Term(r"\brings\b", "notifies"),
    Term(r"HostSide|hostside|host_side\b", "HostRuntime, host runtime"),
    Term(r"BootLogs", "ConsolePublisher"),
    Term(r"\bimage_pin\b|\bPin\b|(namespace|workspace)_pin\b", "ScopeBinding, catalog snapshot"),
    Term(r"\blet_in\b", "WakeCoalescer.ensure_running"),
    Term(r"NamesKeeper|\bPreparer\b|\bReadToEnd\b|\bSenderGone\b|\bBoundedKept\b", "the glossary's classes"),
    Term(r"\bclass (Followers|Gate|Kept|Pushed|Seen|Sleeper|Ticket|Trouble)\b", "ChannelLeaders, BoundedBuffer, ..."),
    Term(r"(?i)\btickets?\b", "stream grant"),
    Term(
        r"(?<!chaos/)\b(answers|bodies|door|ends|exits|gate|hostdown|hostside|kept|rights|stock)\.py\b",
        "see CONTRIBUTING.md",
    ),
    Term(r"[\"{:]activity:\{", "last-used: the key of when a workspace was last used"),
    Term(r"\bfreshen(s|ed)?\b", "resync"),
    # Not searched: the former names of two settings, and an event's name in stored audit entries.
    Term(
        r"(?i)leftover",
        "orphan",
        ("platform/config/env_defaults.py", "workspaces/host/reconcile/machines.py", "tests/test_settings.py"),
    ),
    Term(r"(?i)\brooms\b|\b(lower|higher) room\b|, Floors\)", "app, layer"),
    Term(r"(?i)\bkeeper thread", "heartbeat thread, maintenance thread"),
]


def files() -> Iterator[Path]:
    """The files of the project, without what is built or left out."""
    for folder, inner, names in os.walk(ROOT):
        inner[:] = sorted(name for name in inner if name not in UNTRACKED and (name[0] != "." or name == ".ci"))
        for path in sorted(Path(folder) / name for name in names):
            if not LEFT_OUT.search(str(path.relative_to(ROOT))):
                yield path


@cache
def lines() -> list[tuple[str, str]]:
    """Place and text of each line of the tree's files."""
    found = []
    for path in files():
        name = str(path.relative_to(ROOT))
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [(f"{name}:{number}", line) for number, line in enumerate(text.splitlines(), 1)]
    return found


def places(term: Term) -> list[str]:
    pattern = re.compile(term.old)
    return [
        f"{place}: {line.strip()[:100]}"
        for place, line in lines()
        if pattern.search(line) and not place.startswith(term.not_in)
    ]


@pytest.mark.parametrize("term", TERMS, ids=lambda term: term.old)
def test_an_old_term_is_gone(term: Term) -> None:
    assert places(term) == [], f"say instead: {term.new}"
