"""Visitors of a page: each loads the home page, then the program that it names, and notes what does not fit."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

HOME = re.compile(rb"<title>release (\w+)</title><script type=module src=(/assets/app-[0-9a-f]{8}\.js)></script>")


@dataclass
class Visits:
    """Answers by release, and what was wrong."""

    by_release: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    requests: int = 0


@contextmanager
def visitors(port: int, host: str, rate: float, threads: int = 4) -> Iterator[Visits]:
    """As many requests a second as `rate`, at most, until the end of the block."""
    seen, ended = Visits(), threading.Event()
    made = [threading.Thread(target=_visit, args=(port, host, 2 * threads / rate, seen, ended)) for _ in range(threads)]
    for thread in made:
        thread.start()
    try:
        yield seen
    finally:
        ended.set()
        for thread in made:
            thread.join()


def _visit(port: int, host: str, interval: float, seen: Visits, ended: threading.Event) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    due = time.monotonic()
    while not ended.is_set():
        try:
            _visit_once(connection, host, seen)
        except (OSError, http.client.HTTPException) as exc:
            seen.wrong.append(repr(exc))
        due = max(due + interval, time.monotonic() - 1)
        ended.wait(max(0.0, due - time.monotonic()))
    connection.close()


def _visit_once(connection: http.client.HTTPConnection, host: str, seen: Visits) -> None:
    home = _body(connection, host, "/", seen)
    found = HOME.fullmatch(home.strip())
    if found is None:
        seen.wrong.append(f"home page: {home[:200]!r}")
        return
    program = _body(connection, host, found[2].decode(), seen)
    if not program.startswith(b"export const release = '%s'" % found[1]) or not program.endswith(b"// end\n"):
        seen.wrong.append(f"{found[2]!r} of release {found[1]!r}: {program[:200]!r}")
    seen.by_release[found[1].decode()] += 1


def _body(connection: http.client.HTTPConnection, host: str, path: str, seen: Visits) -> bytes:
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    seen.requests += 1
    body = answer.read()
    if answer.status != 200:
        seen.wrong.append(f"{path}: {answer.status}")
    return body
