"""Parsers of git's output for programs: `status --porcelain=v2 -z`, `log -z`, `--shortstat`. The guest may be
hostile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from common.times import iso, moment

MAX_PATH = 4096
# The most files of all lists of a status. Git prints these outputs, and so anything may: none is taken apart as a
# whole.
MAX_FILES = 100_000
LOG_FORMAT = "%H%x00%an%x00%ae%x00%at%x00%B%x00"
LOG_FIELDS = 5
_AHEAD = re.compile(r"\+(\d{1,9}) -(\d{1,9})")
_STAT = re.compile(r"(\d{1,9}) files? changed(?:, (\d{1,9}) insertions?\(\+\))?(?:, (\d{1,9}) deletions?\(-\))?")


@dataclass(slots=True)
class Status:
    """The status of a working tree. `branch`: None if HEAD is detached. A file may be staged and modified."""

    branch: str | None = None
    commit: str | None = None
    upstream: str | None = None
    ahead: int = 0
    behind: int = 0
    staged: list[str] = field(default_factory=list)
    modified: list[str] = field(default_factory=list)
    untracked: list[str] = field(default_factory=list)
    conflicted: list[str] = field(default_factory=list)
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of a history."""

    hash: str
    author: str
    email: str
    date: str
    message: str


def read_status(output: bytes, *, cut: bool = False) -> Status:
    """Return the status that `git status --porcelain=v2 --branch -z` printed. Records of an unknown kind are passed
    over.

    `cut`: the end of the output is missing. Runs in a thread: takes a second for the longest outputs.
    """
    status = Status(truncated=cut)
    records = _records(output)
    count = 0
    for record in records:
        if record[:2] == b"# ":
            _read_header(status, record[2:].decode("utf-8", "replace"))
        elif count == MAX_FILES:
            status.truncated = True
            break
        else:
            count += 1
            _read_file(status, record.decode("utf-8", "surrogateescape"), records)
    return status


def _records(output: bytes) -> Iterator[bytes]:
    """Yield the records, which end with NUL; the last one is left out if it is incomplete."""
    start = 0
    while (end := output.find(b"\0", start)) >= 0:
        yield output[start:end]
        start = end + 1


def _read_file(status: Status, text: str, following: Iterator[bytes]) -> None:
    kind = text[:2]
    if kind == "? ":
        status.untracked.append(text[2:][:MAX_PATH])
    elif kind == "1 ":
        _read_change(status, text, 8)
    elif kind == "2 ":
        _read_change(status, text, 9)
        next(following, None)  # where it was before
    elif kind == "u ":
        status.conflicted.append(_path(text, 10))


def _read_header(status: Status, text: str) -> None:
    name, _, value = text.partition(" ")
    if name == "branch.oid":
        status.commit = None if value == "(initial)" else value[:64]
    elif name == "branch.head":
        status.branch = None if value == "(detached)" else value[:MAX_PATH]
    elif name == "branch.upstream":
        status.upstream = value[:MAX_PATH]
    elif name == "branch.ab" and (match := _AHEAD.fullmatch(value)):
        status.ahead, status.behind = int(match[1]), int(match[2])


def _read_change(status: Status, text: str, before: int) -> None:
    path = _path(text, before)
    if text[2:3] not in (".", ""):
        status.staged.append(path)
    if text[3:4] not in (".", ""):
        status.modified.append(path)


def _path(text: str, before: int) -> str:
    """Return the path of a record, after so many fields."""
    return text.split(" ", before)[-1][:MAX_PATH]


def read_log(output: bytes, limit: int) -> list[Commit]:
    """Return at most `limit` of `git log --format=LOG_FORMAT`; an incomplete commit at the end is left out."""
    fields = (field.decode("utf-8", "replace") for field in _records(output))
    commits = zip(*[fields] * LOG_FIELDS, strict=False)
    return [
        Commit(commit.strip()[:64], author, email, _date(seconds), message.strip("\n"))
        for commit, author, email, seconds, message in islice(commits, limit)
    ]


def _date(seconds: str) -> str:
    """Return the time in UTC, as all times. Git prints nothing for a time that it could not read."""
    return iso(moment(int(seconds) if re.fullmatch(r"-?[0-9]{1,20}", seconds, re.ASCII) else 0))


def read_stat(output: bytes) -> tuple[int, int, int]:
    """Return files, insertions and deletions of `--shortstat`."""
    match = _STAT.search(output.decode("utf-8", "replace")[-1000:])
    return (int(match[1]), int(match[2] or 0), int(match[3] or 0)) if match else (0, 0, 0)
