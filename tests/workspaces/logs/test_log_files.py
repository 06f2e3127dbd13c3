"""The files of a workspace's logs: listed, read as they are or as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.logs.test_logs import LOGS, console, download, inside, made, shown
from tests.workspaces.workspace_states import bring
from workspaces.states import Status

__all__ = ["inside", "made"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_the_files_are_listed_with_size_and_time(api: Caller, made: str, inside: Callable[[str], Path]) -> None:
    for name in ("cmd.log", "cmd.log.1", "cmd.log.3", "web.log", "of the user.log", "extra.txt"):
        inside(f"/var/log/workspace/{name}").write_bytes(b"12345")
    inside("/srv/out/jobs.txt").write_bytes(b"1")
    (inside("/var/log/workspace/x").parent / os.fsdecode(b"\xff\n.log")).write_bytes(b"1")
    body = api.get(f"{LOGS}/list").json()
    assert (body["success"], body["complete"]) == (True, True)
    assert [(file["name"], file["size"]) for file in body["files"]][1:] == [
        ("cmd.log", 5), ("cmd.log.1", 5), ("cmd.log.3", 5), ("extra.txt", 5), ("jobs.log", 1), ("web.log", 5),
    ]  # fmt: skip
    assert body["files"][0]["name"] == "boot.log"
    assert body["files"][0]["size"] == console(made).stat().st_size
    assert all(file["modified"].endswith("Z") for file in body["files"])


def test_a_file_is_streamed_as_it_is(api: Caller, inside: Callable[[str], Path]) -> None:
    content = bytes(range(256)) * 5000
    inside("/srv/out/jobs.txt.1").write_bytes(content)
    inside("/var/log/workspace/cmd.log").write_bytes(b"")
    answer, body = download(api, "jobs.log.1")
    assert (answer.status_code, body) == (200, content)
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert download(api, "cmd.log")[1] == b""


def test_a_range_of_a_file(api: Caller, made: str, inside: Callable[[str], Path]) -> None:
    inside("/var/log/workspace/cmd.log").write_bytes(b"0123456789")
    whole, _ = download(api, "cmd.log")
    assert (whole["Content-Length"], whole["Accept-Ranges"]) == ("10", "bytes")
    for name, size in (("cmd.log", 10), ("boot.log", console(made).stat().st_size)):
        part, body = download(api, name, Range="bytes=2-4")
        assert (part.status_code, len(body), part["Content-Range"]) == (206, 3, f"bytes 2-4/{size}")
        last, body = download(api, name, Range="bytes=-4")
        assert (last["Content-Range"], len(body)) == (f"bytes {size - 4}-{size - 1}/{size}", 4)
        beyond, _ = download(api, name, Range=f"bytes={size}-")
        assert (beyond.status_code, beyond.json()["code"]) == (416, "range_not_satisfiable")


@pytest.mark.parametrize("accept", ["*/*", "application/json", "application/json, text/plain, */*", "text/html, */*"])
def test_a_file_is_json_where_no_text_is_asked_for(
    api: Caller, made: str, inside: Callable[[str], Path], accept: str
) -> None:
    inside("/var/log/workspace/cmd.log").write_bytes(b"one\n\xfftwo\n")
    answer, body = download(api, "cmd.log", Accept=accept)
    assert answer["Content-Type"] == "application/json"
    assert json.loads(body) == {
        "success": True, "name": "cmd.log", "size": 9, "content": "one\n\ufffdtwo\n", "truncated": False,
    }  # fmt: skip
    found = api.get(f"{LOGS}/file/boot.log").json()
    assert (found["size"], found["content"]) == (console(made).stat().st_size, console(made).read_text())


def test_json_has_the_last_mebibyte_from_the_start_of_a_line(api: Caller, inside: Callable[[str], Path]) -> None:
    lines = [b"line %06d\n" % number for number in range(200_000)]
    inside("/srv/out/jobs.txt").write_bytes(b"".join(lines))
    found = api.get(f"{LOGS}/file/jobs.log").json()
    assert (found["size"], found["truncated"]) == (sum(map(len, lines)), True)
    assert found["content"].encode() == b"".join(lines[-((1 << 20) // len(lines[0])) :])


def test_the_consoles_files_are_read_on_the_host(api: Caller, made: str) -> None:
    answer, body = download(api, "boot.log")
    assert (answer.status_code, body) == (200, console(made).read_bytes())
    assert download(api, "boot.log.1")[0].status_code == 404


@pytest.mark.parametrize(
    "name", ["none.log", "..", ".hidden", "a b", "%2e%2e%2fetc%2fpasswd", "x" * 200, "a%00b", "%FF"]
)
def test_an_unknown_file_is_404(api: Caller, made: str, name: str) -> None:
    answer, _ = download(api, name)
    assert answer.status_code == 404
    assert answer.json()["success"] is False


def test_what_lies_in_the_guest_needs_it_to_run(api: Caller, vmhost: FakeHost, made: str) -> None:
    bring(api, vmhost, made, Status.STOPPED)
    assert shown(api) == ["booted"]
    listed = api.get(f"{LOGS}/list").json()
    assert ([file["name"] for file in listed["files"]], listed["complete"]) == (["boot.log"], False)
    assert download(api, "boot.log")[0].status_code == 200
    for answer in (api.get(f"{LOGS}?source=cmd"), api.delete(LOGS), download(api, "cmd.log")[0]):
        assert (answer.status_code, answer.json()["code"]) == (409, "vm_not_running")
        assert "is stopped. The logs of its programs lie on its own disk" in answer.json()["message"]
    assert shown(api) == ["booted"], "a refused clear has cleared nothing"
