"""Event streams: a client reads some events, breaks off, comes back with the last id, and misses and repeats none."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.chaos.ledger import Tracked
from tests.chaos.session import Session

NUMBERS = "an event stream has no hole and no repetition"
SECONDS = 4.0
EVENTS = 6


def read_stream(session: Session, tracked: Tracked) -> None:
    path = session.random.choice(["stats/stream", "logs/stream/boot"])
    last = ""
    for _ in range(2):
        headers = {"Last-Event-ID": last} if last else {}
        seen = list(_ids(session, f"/workspace/{tracked.id}/{path}", tracked, headers))
        session.expect(NUMBERS, id_problems(f"{tracked.id} {path}", last, seen))
        last = next((key for key in reversed(seen) if key != "gap"), last)


def _ids(session: Session, path: str, tracked: Tracked, headers: dict[str, str]) -> Iterator[str]:
    """The ids of events, and `gap` where the stream says that some are missing."""
    until, count = time.monotonic() + SECONDS, 0
    for line in session.lines("stream", path, tracked, headers):
        if line.startswith("event: gap"):
            yield "gap"
        if line.startswith("id:"):
            yield line.partition(":")[2].strip()
            count += 1
        if count >= EVENTS or time.monotonic() > until:
            return


def id_problems(what: str, last: str, seen: list[str]) -> list[str]:
    """Ids are `epoch-number`. Each number follows the one before, and a new epoch a `gap`."""
    problems = []
    before = last
    for key in seen:
        if key == "gap":
            before = ""
            continue
        epoch, _, number = key.rpartition("-")
        known, _, previous = before.rpartition("-")
        follows = known == epoch and int(number) == int(previous or 0) + 1
        if before and not follows:
            problems.append(f"{what}: {key} after {before}")
        before = key
    return problems
