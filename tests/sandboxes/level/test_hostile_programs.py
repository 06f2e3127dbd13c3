"""A git or a search program of the machine that prints anything: it costs its own request, and no other one a wait."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sandboxes.level.git.errors import GitFailed, GitTimedOut, git_error
from sandboxes.level.git.exchange import MAX_ADDRESSES
from sandboxes.level.git.status import MAX_FILES, read_log, read_status
from tests.sandboxes.level.calls import SandboxCaller
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.session import ExecResult, GuestSession, SearchTools, TreeEntry
from workspaces.data_plane.files.services import LIST_LIMIT, files_list

MIB = 1 << 20
Output = Callable[[Sequence[str]], bytes]


def result(stdout: bytes = b"", stderr: bytes = b"", **fields: Any) -> ExecResult:
    values: dict[str, Any] = {"exit_code": 0, "duration_ms": 1, "truncated": False, "timed_out": False, **fields}
    return ExecResult(stdout=stdout, stderr=stderr, **values)


def printing(monkeypatch: pytest.MonkeyPatch, output: Output) -> None:
    """Every program prints this, as far as the caller takes it."""

    async def execute(self: FakeGuestSession, command: Sequence[str], *, max_output: int = MIB, **_: Any) -> ExecResult:
        printed = output(command)
        return result(printed[:max_output], truncated=len(printed) > max_output)

    monkeypatch.setattr(FakeGuestSession, "execute", execute)


def peak(work: Callable[[], Any]) -> int:
    """Bytes of Python's memory at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.django_db(transaction=True)
def test_a_status_has_a_hundred_thousand_files_at_most(box: SandboxCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    printing(monkeypatch, lambda _: b"# branch.head main\0" + b"? a\0" * (MAX_FILES + 5))
    found = box.post("git/status", {"repoPath": "/"})
    assert (found["branch"], len(found["untracked"]), found["truncated"]) == ("main", MAX_FILES, True)
    printing(monkeypatch, lambda _: b"# branch.head main\0" + b"? a\0" * 5)
    assert "truncated" not in box.post("git/status", {"repoPath": "/"})


@pytest.mark.django_db(transaction=True)
def test_more_than_was_asked_for_is_left_out(box: SandboxCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    def output(command: Sequence[str]) -> bytes:
        if "log" in command:
            return b"h\0a\0e\0d\0m\0" * 1000
        return b"x\n" * 20_000 if "for-each-ref" in command else b"# branch.oid 123\0# branch.head main\0"

    printing(monkeypatch, output)
    assert len(box.post("git/history", {"repoPath": "/", "limit": 3})["commits"]) == 3
    found = box.post("git/branch/list", {"repoPath": "/"})
    assert (len(found["branches"]), found["truncated"], found["current"]) == (10_000, True, "main")


@pytest.mark.parametrize("record", [b"\0", b"? \0", b"1 M. a\0", b"2 R. a\0", b"# \0"])
def test_many_small_records_take_little_memory(record: bytes) -> None:
    output = record * (4 * MIB // len(record))
    assert peak(lambda: read_status(output)) < 40 * MIB
    assert peak(lambda: read_log(output, 1000)) < 2 * MIB


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["config", "get-url"])
def test_a_configuration_that_is_not_read_to_its_end_gets_no_credentials(
    box: SandboxCaller, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    address = b"http://127.0.0.1/x"

    def output(command: Sequence[str]) -> bytes:
        if "config" in command:
            others = b"local\0a.b\nc\0" * (200_000 if name == "config" else 1)
            return b"local\0remote.origin.url\n%b\0" % address + others
        return (address + b"\n") * (MAX_ADDRESSES + 1 if name == "get-url" else 1)

    printing(monkeypatch, output)
    body = {"repoPath": "/", "auth": {"type": "token", "token": "secret"}}
    assert box.refused("git/push", body)[:2] == (409, "git_credentials_refused")


def test_an_error_of_many_lines_is_a_short_sentence_without_a_part_of_a_secret() -> None:
    secret = "s" * 40
    lines = b"error: x\n" * 7000 + f"remote: {secret}".encode() * 100_000
    error = git_error(result(stderr=lines, exit_code=1), [secret])
    assert isinstance(error, GitFailed)
    assert error.message == "error: x error: x error: x"
    cut = git_error(result(stderr=f"{'x' * 65_500}\nremote: {secret}".encode(), exit_code=1), [secret])
    assert "ss" not in cut.message


def test_a_deadline_without_a_remote_is_no_error_of_the_network() -> None:
    assert isinstance(git_error(result(exit_code=124, timed_out=True), remote=False), GitTimedOut)


class Searched(FakeGuestSession):
    """Its search program finds these files; nothing else is there."""

    def __init__(self, files: Sequence[str]) -> None:
        self.files, self.described = files, list[str]()

    async def stat(self, path: str) -> Any:
        return type("Entry", (), {"type": "directory"})()

    async def search_tools(self, *, again: bool = False) -> SearchTools:
        return SearchTools(("rg",), ("sh",))

    async def execute(self, *_: Any, **__: Any) -> ExecResult:
        return result("".join(f"{file}\0" for file in self.files).encode())

    async def describe_files(self, path: str, names: Sequence[str]) -> list[TreeEntry]:
        self.described = list(names)
        return []


def listed(files: Sequence[str]) -> tuple[list[str], bool]:
    session: GuestSession = Searched(files)
    found = asyncio.run(files_list(session, path="/", depth=64, ignore=[], gitignore=True))
    assert isinstance(session, Searched)
    return session.described, found.truncated


def test_files_of_deep_directories_take_little_memory() -> None:
    files = [f"{number:04}/" + "a/" * 2040 + "x" for number in range(100)]
    assert peak(lambda: listed(files)) < 40 * MIB
    names, truncated = listed(files)
    assert truncated
    assert 0 < len(names) <= LIST_LIMIT
    assert names[:2] == ["0000", "0000/a"]


def test_directories_come_before_what_is_in_them_and_once() -> None:
    files = ["b/c/x", "b-c", "a", "b/c/y", "b/a", "b/c/y"]
    assert listed(files) == (["a", "b", "b/a", "b/c", "b/c/x", "b/c/y", "b-c"], False)
    many = [f"d{number}/x" for number in range(LIST_LIMIT)]
    names, truncated = listed(many)
    assert (len(names), truncated, json.dumps(names[:2])) == (LIST_LIMIT, True, '["d0", "d0/x"]')
