"""The admin with many rows beside few: the same queries, and how much longer each page takes.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.admin [--only REGEX]

Fills two databases: one with a thousand rows of each kind, one with the given sizes (some 8 GB, a few minutes); on a
server that PLATFORM_DATABASE_URL names they stay, and are used again. Then measures, in turns, the dashboard,
every list (first page, one deep in it, each filter, order and search), every page of a row with all its tabs, and the
lists of the API: each rendered whole by Django's test client. What misses its bar is repeated. Ends with status 1 if a
list was not measured or a bar is missed.

Times are of the processor, of this process and the server's for it: other work on the machine is not in them. Where the
small database has fewer rows for a page, its first page of the same list is what the time is compared with.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from benchmarks.databases import new_database

FEW = 1000
RATIO, DASHBOARD_SECONDS, DASHBOARD_QUERIES = 1.3, 0.1, 12
REPEATED = 4
# Of processor time, by which reading a list may grow before the whole page is measured.
ALLOWED_SECONDS = 0.005


class Database:
    """A child process with one database, and what it measured: by page and whether it was rendered."""

    def __init__(self, name: str, folder: Path, sizes: dict[str, int]) -> None:
        self.name = name
        self.queries: dict[str, int] = {}
        self.rows: dict[str, int] = {}  # that the list shows
        self.wall: dict[tuple[str, bool], list[float]] = defaultdict(list)
        self.cpu: dict[tuple[str, bool], list[float]] = defaultdict(list)
        own = {"STATE": str(folder), "DATABASE_URL": _url(name), "VM_BACKEND": "fake", "LOG_LEVEL": "ERROR"}
        own["SECRET_KEY"] = "a-key-of-the-benchmark-alone-0123456789"
        env = {**os.environ, **{f"PLATFORM_{key}": value for key, value in own.items()}}
        command = [sys.executable, "-m", "benchmarks.admin_child", *(f"--{key}={size}" for key, size in sizes.items())]
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pages = self._answer()
        if self.pages["unmeasured"]:
            raise SystemExit(f"not measured: {self.pages['unmeasured']}")

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process with {self.name} rows ended")
        found: dict[str, Any] = json.loads(line)
        return found

    def measure(self, page: str, *, rendered: bool) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([page, rendered]) + "\n")
        self.process.stdin.flush()
        found = self._answer()
        self.queries[page], self.rows[page] = found["queries"], found["rows"]
        self.wall[page, rendered].append(found["wall"])
        self.cpu[page, rendered].append(found["cpu"])

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def _url(name: str) -> str:
    parts = urlsplit(new_database(f"bench_{name}"))
    # Time of other processes of the server would not be seen.
    query = f"{parts.query}&options={quote('-c max_parallel_workers_per_gather=0')}"
    return parts._replace(query=query).geturl()


def main() -> None:
    given = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="mvmb-"))
    many_rows = {name: getattr(given, name) for name in ("workspaces", "records", "activity")}
    try:
        few = Database("few", folder, dict.fromkeys(many_rows, FEW))
        many = Database("many", folder, many_rows)
        ok = _compare(few, many, given)
        few.close()
        many.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if ok else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workspaces", type=int, default=100_000)
    parser.add_argument("--records", type=int, default=10_000_000, help="metering records")
    parser.add_argument("--activity", type=int, default=1_000_000, help="activity, ledger, events, deliveries")
    parser.add_argument("--rounds", type=int, default=3, help="of each page; what misses its bar has more")
    parser.add_argument("--only", default="", help="a regular expression for names of pages")
    return parser.parse_args()


def _compare(few: Database, many: Database, given: argparse.Namespace) -> bool:
    if few.pages != many.pages:
        raise SystemExit(f"only one has {set(few.pages['admin']) ^ set(many.pages['admin'])}")
    pages = [page for page in (*many.pages["admin"], *many.pages["api"]) if re.search(given.only, page)]
    rendered = [page for page in pages if _is_rendered(page, many.pages["admin"])]
    for page in sorted(set(pages) - set(rendered)):
        _take_turns(few, many, page, 1, rendered=False)
        if _grew(few, many, page):
            base, ours = (min(each.cpu[page, False]) * 1e3 for each in (few, many))
            print(f"  reading {page} took {base:.0f} and {ours:.0f} ms", file=sys.stderr, flush=True)
            rendered.append(page)
    _repeated(few, many, rendered, given.rounds)
    _show(few, many, rendered, len(pages))
    return not any(_missed(few, many, page) for page in rendered)


def _is_rendered(page: str, admin: list[str]) -> bool:
    """Not the lists by filters, orders and searches: their HTML costs what that of the first page costs."""
    return page not in admin or " " not in page or page.endswith((" row", " row, busiest", " deep", " deep, back"))


def _grew(few: Database, many: Database, page: str) -> bool:
    """Whether reading the list alone took so much longer that the page may miss its bar."""
    for _ in range(2):
        ours, base = (min(each.cpu[page, False]) for each in (many, few))
        if ours - base < ALLOWED_SECONDS and few.queries[page] == many.queries[page]:
            return False
        _take_turns(few, many, page, 1, rendered=False)
    return True


def _repeated(few: Database, many: Database, pages: list[str], rounds: int) -> None:
    for page in pages:
        _take_turns(few, many, page, rounds, rendered=True)
        if not few.cpu[_base(few, many, page), True]:
            _take_turns(few, many, _base(few, many, page), rounds, rendered=True)
        print(_line(few, many, page), file=sys.stderr, flush=True)
    for _ in range(REPEATED):
        for page in [page for page in pages if _missed(few, many, page)]:
            _take_turns(few, many, page, rounds, rendered=True)


def _take_turns(few: Database, many: Database, page: str, rounds: int, *, rendered: bool) -> None:
    for _ in range(rounds):
        for database in (few, many):
            database.measure(page, rendered=rendered)


def _ratio(few: Database, many: Database, page: str) -> float:
    return statistics.median(many.cpu[page, True]) / statistics.median(few.cpu[_base(few, many, page), True])


def _base(few: Database, many: Database, page: str) -> str:
    """With what a page is compared: itself, or the first page of its list where it shows fewer rows with few."""
    return page if few.rows[page] == many.rows[page] else page.split(" ", maxsplit=1)[0]


def _missed(few: Database, many: Database, page: str) -> str:
    found = []
    if (ratio := _ratio(few, many, page)) > RATIO:
        found.append(f"{ratio:.2f} times")
    if few.queries[page] != many.queries[page]:
        found.append(f"{few.queries[page]} and {many.queries[page]} queries")
    if page == "dashboard" and statistics.median(many.cpu[page, True]) > DASHBOARD_SECONDS:
        found.append("more than 100 ms")
    if page == "dashboard" and many.queries[page] > DASHBOARD_QUERIES:
        found.append("more than 12 queries")
    return ", ".join(found)


def _line(few: Database, many: Database, page: str) -> str:
    base = statistics.median(few.cpu[_base(few, many, page), True]) * 1e3
    ours = statistics.median(many.cpu[page, True]) * 1e3
    clock = [statistics.median(each.wall[page, True]) * 1e3 for each in (few, many)]
    missed = _missed(few, many, page)
    line = f"{page[:78]:78} {many.queries[page]:7} {base:8.1f} {ours:8.1f} {ours / base:6.2f}"
    return f"{line}   {clock[0]:.0f} {clock[1]:.0f} {'MISSED: ' + missed if missed else ''}"


def _show(few: Database, many: Database, pages: list[str], count: int) -> None:
    print(f"{'page':78} {'queries':>7} {'few, ms':>8} {'many, ms':>8} {'ratio':>6}   by the clock, ms")
    for page in pages:
        print(_line(few, many, page), flush=True)
    ratios = sorted((_ratio(few, many, page), page) for page in pages)
    print(
        f"{len(pages)} pages rendered: median ratio {statistics.median(r for r, _ in ratios):.2f}, worst {ratios[-1]}"
    )
    print(f"{count - len(pages)} others: reading the rows took at most {ALLOWED_SECONDS * 1e3:.0f} ms more")
    print(f"missed: {sum(bool(_missed(few, many, page)) for page in pages)}")


if __name__ == "__main__":
    main()
