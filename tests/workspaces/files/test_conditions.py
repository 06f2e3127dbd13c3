"""Reads of files in parts, under conditions, and of files that change during the read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient

from tests.callers import Caller
from tests.workspaces.files.calls import FILES, RAW, ask, write
from workspaces.conditions import FileShrank

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("asked", "status", "part", "content_range"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
        ("BYTES=4-5", 206, b"45", "bytes 4-5/10"),
        ("bytes=4-", 206, b"456789", "bytes 4-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
        ("bytes=10-", 416, None, "bytes */10"),
        ("bytes=-0", 416, None, "bytes */10"),
        ("bytes=0-1,4-5", 200, b"0123456789", None),
        ("lines=1-2", 200, b"0123456789", None),
        ("bytes=-", 200, b"0123456789", None),
        ("bytes=" + "9" * 5000 + "-", 200, b"0123456789", None),
    ],
)
def test_ranges(api: Caller, made: str, asked: str, status: int, part: bytes | None, content_range: str | None) -> None:
    write(api, "/ten", b"0123456789")
    answer, body = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW, Range=asked)
    assert answer.status_code == status
    assert answer.get("Content-Range") == content_range
    if part is None:
        assert json.loads(body)["code"] == "range_not_satisfiable"
    else:
        assert body == part


def test_a_head_returns_the_size_and_reads_nothing(api: Caller, made: str) -> None:
    write(api, "/ten", b"0123456789")
    answer, body = ask(api, "HEAD", f"{FILES}?path=/ten", Accept=RAW, Range="bytes=20-")
    assert (answer.status_code, answer["Content-Length"], answer["Content-Type"]) == (200, "10", RAW)
    assert body == b""
    answer, _ = ask(api, "HEAD", f"{FILES}?path=/ten")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
    assert ask(api, "HEAD", f"{FILES}?path=/missing", Accept=RAW)[0].status_code == 404


def test_a_read_announces_its_length(api: Caller, made: str) -> None:
    write(api, "/ten", b"0123456789")
    assert ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW)[0]["Content-Length"] == "10"
    assert ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW, Range="bytes=2-4")[0]["Content-Length"] == "3"
    write(api, "/none", b"")
    answer, body = ask(api, "GET", f"{FILES}?path=/none", Accept=RAW)
    assert (answer["Content-Length"], body) == ("0", b"")
    assert ask(api, "GET", f"{FILES}?path=/none", Accept=RAW, Range="bytes=0-")[0].status_code == 416


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/json"),
        ("text/html, */*;q=0.1", "application/json"),
        ("image/png", "application/json"),
        (RAW, RAW),
        (f"{RAW}, application/json;q=0.5", RAW),
        (f"{RAW};q=0.5, application/json", "application/json"),
    ],
)
def test_the_accept_header_chooses_the_form(api: Caller, made: str, accept: str, kind: str) -> None:
    write(api, "/x", b"x")
    answer, _ = ask(api, "GET", f"{FILES}?path=/x", Accept=accept)
    assert (answer["Content-Type"], answer["Vary"]) == (kind, "Accept")


def aged(file: Path, seconds: float = 3600) -> None:
    """Make a file's last change lie so far back that another one would be seen."""
    then = time.time() - seconds
    os.utime(file, (then, then))


def test_a_download_is_resumed_only_if_the_file_has_not_changed(api: Caller, disk: Path) -> None:
    write(api, "/ten", b"0123456789")
    aged(disk / "ten")
    first, _ = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW)
    tag, date = first["ETag"], first["Last-Modified"]
    for known in (tag, date):
        answer, body = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW, Range="bytes=5-", If_Range=known)
        assert (answer.status_code, body) == (206, b"56789")
    write(api, "/ten", b"abcdefghij")
    aged(disk / "ten", 1800)
    for known in (tag, date, f"W/{tag}", '"other"'):
        answer, body = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW, Range="bytes=5-", If_Range=known)
        assert (answer.status_code, body) == (200, b"abcdefghij")


def test_what_changed_just_now_has_no_strong_tag(api: Caller, made: str) -> None:
    write(api, "/ten", b"0123456789")
    first, _ = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW)
    assert first["ETag"].startswith('W/"')
    for known in (first["ETag"], first["Last-Modified"]):
        answer, _ = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW, Range="bytes=5-", If_Range=known)
        assert answer.status_code == 200


def test_what_the_caller_has_already_is_not_sent_again(api: Caller, disk: Path) -> None:
    write(api, "/ten", b"0123456789")
    aged(disk / "ten")
    first, _ = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW)
    answer, body = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW, If_None_Match=first["ETag"])
    assert (answer.status_code, body, answer["ETag"]) == (304, b"", first["ETag"])
    answer, _ = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW, If_Modified_Since=first["Last-Modified"])
    assert answer.status_code == 304
    answer, body = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW, If_Match='"other"')
    assert (answer.status_code, json.loads(body)["code"]) == (412, "precondition_failed")
    assert ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW, If_None_Match='"other"')[0].status_code == 200


def test_a_file_that_grows_while_it_is_read_ends_where_it_was_announced_to(api: Caller, disk: Path) -> None:
    (disk / "log").write_bytes(b"x" * 300_000)
    answer, taken = half_read(api, "/log", lambda: (disk / "log").open("ab").write(b"y" * 1000))
    assert (answer["Content-Length"], taken) == ("300000", b"x" * 300_000)


def test_a_file_that_shrinks_while_it_is_read_cuts_the_answer_off(api: Caller, disk: Path) -> None:
    (disk / "log").write_bytes(b"x" * 3_000_000)
    with pytest.raises(FileShrank):
        half_read(api, "/log", lambda: os.truncate(disk / "log", 70_000))


def half_read(api: Caller, path: str, then: Any) -> Any:
    """The answer and its body; `then` happens after the body's first piece."""

    async def call() -> Any:
        answer: Any = await AsyncClient().get(f"{FILES}?path={path}", headers={**api.headers, "Accept": RAW})
        body = aiter(answer.streaming_content)
        taken = await anext(body)
        then()
        return answer, taken + b"".join([piece async for piece in body])

    return async_to_sync(call)()
