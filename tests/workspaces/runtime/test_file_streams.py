"""`GET /files/stream`: trees of any size as lines of JSON."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.runtime.conftest import Holder
from tests.world import assert_error
from vmbackend.errors import GuestUnreachable
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.session import TreeEntry
from workspaces.runtime.files.streamed import StreamFailed

pytestmark = pytest.mark.django_db(transaction=True)
BATCHES, ENTRIES = 200, 500
MEMORY = 8 << 20


@pytest.fixture
def disk(holder: Holder) -> Path:
    place = holder.disk / "w" / "a"
    place.mkdir(parents=True)
    (place / "b.py").write_text("x")
    (holder.disk / "w" / "line\nbreak").write_text("y")
    return holder.disk


def lines(pieces: Any) -> list[Any]:
    return [json.loads(line) for line in b"".join(pieces).splitlines()]


def test_entries_are_lines_between_two_events(holder: Holder, disk: Path) -> None:
    answer, pieces = holder.streamed("/files/stream", path="/w", flatten="true", include_content="true", light="false")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/x-ndjson")
    start, *entries, done = lines(pieces)
    assert start == {"event": "start", "path": "/w"}
    assert done == {"event": "done", "count": 3, "truncated": False}
    assert entries == holder.found("/files", path="/w", flatten="true", include_content="true")["entries"]


def test_a_stream_without_entries(holder: Holder, disk: Path) -> None:
    _, pieces = holder.streamed("/files/stream", path="/w", path_filter="none")
    assert lines(pieces) == [{"event": "start", "path": "/w"}, {"event": "done", "count": 0, "truncated": False}]


@pytest.mark.skipif(shutil.which("rg") is None, reason="needs ripgrep")
def test_what_git_ignores_is_left_out(holder: Holder, disk: Path) -> None:
    (disk / "w" / ".gitignore").write_text("line*\n")
    _, pieces = holder.streamed("/files/stream", path="/w", nested="true", use_gitignore="true", light="true")
    assert [line.get("path") for line in lines(pieces)] == ["/w", "/w/.gitignore", "/w/a", "/w/a/b.py", None]


def test_what_is_wrong_before_the_first_byte_is_an_error(holder: Holder, disk: Path) -> None:
    assert_error(holder.ask("/files/stream", path="/none"), 404, "path_not_found")
    assert_error(holder.ask("/files/stream", path="/w/a/b.py"), 400, "path_invalid")
    assert_error(holder.ask("/files/stream", path="/w", max_depth="x"), 400, "validation_error")
    assert_error(holder.ask("/files/stream", path="/w", use_gitignore="true", ignore_patterns="a{"), 400)
    assert_error(holder.send("GET", "/files/stream?path=/w", token="none"), 401, "unauthorized")


def walk_of(monkeypatch: pytest.MonkeyPatch, batches: int, failure: Exception | None = None) -> None:
    """The guest has this many entries, or fails after them."""

    async def walk_streamed(session: FakeGuestSession, path: str, **options: Any) -> AsyncIterator[list[TreeEntry]]:
        for number in range(batches):
            yield [TreeEntry(f"{number}-{each}", "file", 1, 0.0, True) for each in range(ENTRIES)]
        if failure is not None:
            raise failure

    monkeypatch.setattr(FakeGuestSession, "walk_streamed", walk_streamed)


def test_a_failure_in_between_is_a_line_and_breaks_off(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    walk_of(monkeypatch, 1, GuestUnreachable("The machine is gone."))
    _, pieces = holder.streamed("/files/stream", path="/")
    received: list[bytes] = []
    with pytest.raises(StreamFailed):
        received.extend(pieces)
    start, *entries, error = lines(received)
    assert (start["event"], len(entries)) == ("start", ENTRIES)
    assert (error["event"], error["success"]) == ("error", False)
    assert error["code"]
    assert error["message"]


def test_memory_does_not_grow_with_the_tree(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    walk_of(monkeypatch, BATCHES)
    _, pieces = holder.streamed("/files/stream", path="/")
    next(pieces)
    tracemalloc.start()
    try:
        size = sum(len(piece) for piece in pieces)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > BATCHES * ENTRIES * 50
    assert peak < MEMORY
