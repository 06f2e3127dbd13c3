"""Searching in a sandbox's files, by the ripgrep of this host."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.sandboxes.level.calls import SandboxCaller
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.session import ExecResult, SearchTools
from workspaces.data_plane.search import services
from workspaces.data_plane.search.errors import SearchMemoryExceeded
from workspaces.data_plane.search.program import (
    LARGEST_PART,
    LEAST_MEMORY_KIB,
    MEMORY_KIB,
    read_matches,
    require_success,
    with_memory_limit,
    without_large_files,
)

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(shutil.which("rg") is None, reason="needs ripgrep"),
]


def write(disk: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        place = disk / name.replace("__", "/").replace("_DOT_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)


def found(box: SandboxCaller, query: str, path: str = "/", **options: Any) -> list[tuple[str, int, int, str]]:
    rows = box.post("search", {"query": query, "path": path, "options": options})["matches"]
    return [(row["file"], row["line"], row["column"], row["text"]) for row in rows]


def names(box: SandboxCaller, query: str, path: str = "/", **options: Any) -> list[str]:
    files: list[str] = box.post("search/filenames", {"query": query, "path": path, "options": options})["files"]
    return files


def test_matches_have_their_places(box: SandboxCaller, disk: Path) -> None:
    write(disk, w__a="one\ntwo needle needle\n", w__b___DOT_hidden="Needle", w__c="nothing")
    body = box.post("search", {"query": "needle"})
    assert [row for row in body["matches"] if row["file"].startswith("/w/")] == [
        {"file": "/w/a", "line": 2, "column": 5, "text": "two needle needle"},
        {"file": "/w/b/.hidden", "line": 1, "column": 1, "text": "Needle"},
    ]
    assert (body["total"], body["truncated"], body["timedOut"]) == (len(body["matches"]), False, False)
    assert isinstance(body["duration"], int)
    assert found(box, "needle", "/w/a") == [("/w/a", 2, 5, "two needle needle")]
    assert box.refused("search", {"query": "x", "path": "/none"})[:2] == (404, "path_not_found")


def test_the_options_choose(box: SandboxCaller, disk: Path) -> None:
    write(disk, w__a_DOT_c="A.B\naxb\n", w__b_DOT_py="a.b\n", w__skip__c_DOT_c="a.b\n", w___DOT_gitignore="*.py\n")
    assert [row[:2] for row in found(box, "a.b", "/w")] == [("/w/a.c", 1), ("/w/b.py", 1), ("/w/skip/c.c", 1)]
    assert [row[:2] for row in found(box, "a.b", "/w", caseSensitive=True)] == [("/w/b.py", 1), ("/w/skip/c.c", 1)]
    assert [row[:2] for row in found(box, "a.b", "/w", regex=True, include=["*.c"])] == [
        ("/w/a.c", 1), ("/w/a.c", 2), ("/w/skip/c.c", 1),
    ]  # fmt: skip
    assert [row[:2] for row in found(box, "a.b", "/w", include=["*.c", "*.py"], exclude=["skip/", "b.*"])] == [
        ("/w/a.c", 1)
    ]


def test_names_that_the_platform_makes_are_neither_listed_nor_found(box: SandboxCaller, disk: Path) -> None:
    own = [".partial-0123456789abcdef", ".files-0123456789abcdef", ".ask-0123456789abcdef"]
    (disk / "w").mkdir()
    for name in (*own, ".ask-config", ".partial-mine", "seen"):
        (disk / "w" / name).write_text("needle\n")
    shown = ["/w/.ask-config", "/w/.partial-mine", "/w/seen"]
    for options in ({}, {"include": ["*"]}):
        assert [row[0] for row in found(box, "needle", "/w", **options)] == shown
        assert names(box, "-", "/w", **options) == shown[:2]
    for more in ({}, {"recursive": True}, {"useGitignore": True, "recursive": True}):
        listed = box.post("files/list", {"dirPath": "/w", **more})["files"]
        assert [entry["path"] for entry in listed] == shown


def test_a_search_stops_at_its_number(box: SandboxCaller, disk: Path) -> None:
    write(disk, many="needle\n" * 100_000, three="other\n" * 3)
    body = box.post("search", {"query": "needle", "options": {"maxResults": 5}})
    assert ([row["line"] for row in body["matches"]], body["truncated"]) == ([1, 2, 3, 4, 5], True)
    body = box.post("search", {"query": "other", "options": {"maxResults": 3}})
    assert (body["total"], body["truncated"]) == (3, False)


def test_a_search_that_takes_too_long_returns_what_it_found(
    box: SandboxCaller, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(disk, a="needle\n")
    os.mkfifo(disk / "pipe")  # named itself it is opened, and blocks
    monkeypatch.setattr(services, "SEARCH_SECONDS", 1.0)
    body = box.post("search", {"query": "needle", "path": "/pipe"})
    assert (body["matches"], body["truncated"], body["timedOut"]) == ([], True, True)


def test_binaries_long_lines_and_odd_names(box: SandboxCaller, disk: Path) -> None:
    write(disk, w__binary=b"needle\0\n", w__long="needle" + "ü" * 2_000_000, w__latin=b"needle \xff\n")
    (disk / "w" / os.fsdecode(b"\xff\n.txt")).write_text("needle\n")
    rows = box.post("search", {"query": "needle", "path": "/w"})["matches"]
    by_name = {row["file"]: row for row in rows}
    assert sorted(by_name) == ["/w/latin", "/w/long", "/w/\ufffd\n.txt"]
    assert by_name["/w/\ufffd\n.txt"]["encodedFile"] == "/w/%FF%0A.txt"
    assert (len(by_name["/w/long"]["text"]), by_name["/w/latin"]["text"]) == (500, "needle \ufffd")


def test_a_line_too_large_for_the_memory_costs_only_large_files(box: SandboxCaller, disk: Path) -> None:
    write(disk, w__a="needle\n", w__large="text\n" * 15_000_000 + "needle\n")
    assert sorted(row[0] for row in found(box, "needle", "/w")) == ["/w/a", "/w/large"]
    with (disk / "w/line").open("wb") as file:
        file.writelines([b"x" * 1_000_000] * 300)
        file.write(b"needle\n")
    body = box.post("search", {"query": "needle", "path": "/w"})
    assert [row["file"] for row in body["matches"]] == ["/w/a"]
    assert body["truncated"]  # there is a file that was left out
    # A single file is mapped.
    assert [row[:3] for row in found(box, "needle", "/w/line")] == [("/w/line", 1, 300_000_001)]


@pytest.mark.parametrize("by", [signal.SIGABRT, signal.SIGKILL])
def test_a_search_that_was_ended_for_its_memory_is_no_empty_answer(by: signal.Signals) -> None:
    def ended(*, timed_out: bool) -> ExecResult:
        return ExecResult(128 + by, b"", b"", 1, truncated=False, timed_out=timed_out)

    with pytest.raises(SearchMemoryExceeded):
        require_success(ended(timed_out=False))
    require_success(ended(timed_out=True))  # which is reported as such


def test_a_search_has_at_most_half_of_the_memory_that_is_left() -> None:
    command = with_memory_limit(["sh"], ["sh", "-c", "ulimit -d"], [])
    left = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    shown = int(subprocess.run(command, check=True, capture_output=True).stdout)
    assert shown == MEMORY_KIB or LEAST_MEMORY_KIB <= shown <= int(left.split()[1])
    again = subprocess.run(without_large_files(["sh"], ["echo"], ["."]), check=True, capture_output=True).stdout
    assert int(again.split(b"=")[1].split(b"K")[0]) <= MEMORY_KIB // LARGEST_PART


def test_links_are_not_followed(box: SandboxCaller, disk: Path) -> None:
    write(disk, w__a="needle\n")
    (disk / "w/loop").symlink_to(".")
    (disk / "w/again").symlink_to("a")
    assert [row[0] for row in found(box, "needle", "/w")] == ["/w/a"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "query"),
        ({"query": ""}, "query"),
        ({"query": "a\0b"}, "query"),
        ({"query": "a\nb"}, "query"),
        ({"query": "(", "options": {"regex": True}}, "query"),
        ({"query": "x" * 10_001}, "query"),
        ({"query": "a", "path": "relative"}, "path"),
        ({"query": "a", "options": {"maxResults": 0}}, "options.maxResults"),
        ({"query": "a", "options": {"maxResults": 10_001}}, "options.maxResults"),
        ({"query": "a", "options": {"include": ["["]}}, "options"),
        ({"query": "a", "options": {"include": ["!x"]}}, "options.include.0"),
        ({"query": "a", "options": {"exclude": [""]}}, "options.exclude.0"),
        ({"query": "a", "options": {"exclude": "x"}}, "options.exclude"),
    ],
)
def test_a_request_of_a_wrong_kind_is_400(box: SandboxCaller, body: Any, field: str) -> None:
    for route in ("search", "search/filenames"):
        if route == "search/filenames" and body.get("query") == "a\nb":
            continue
        status, code, details = box.refused(route, body)
        assert (status, code, list(details)) == (400, "validation_error", [field])


def test_options_are_no_options_of_the_program(box: SandboxCaller, disk: Path) -> None:
    write(disk, w__a="--files\n", w__b="-e x; $(id) 'q'\n")
    (disk / "w/-rf").write_text("dash")
    assert [row[0] for row in found(box, "--files", "/w")] == ["/w/a"]
    assert [row[0] for row in found(box, "; $(id) 'q'", "/w")] == ["/w/b"]
    assert [row[0] for row in found(box, "dash", "/w/-rf")] == ["/w/-rf"]
    assert names(box, "-rf") == ["/w/-rf"]


def test_files_are_found_by_their_names(box: SandboxCaller, disk: Path) -> None:
    write(disk, src__main_DOT_py="", src__domain__x="", src__Main_DOT_c="", src__a__b="", src__sp="")
    (disk / "src/a b (1).txt").write_text("")
    assert names(box, "main", "/src") == ["/src/Main.c", "/src/main.py"]
    assert names(box, "main", "/src", caseSensitive=True) == ["/src/main.py"]
    assert names(box, "a/b", "/src") == ["/src/a/b"]
    assert names(box, "^(main|domain)", "/src", regex=True, caseSensitive=True) == ["/src/domain/x", "/src/main.py"]
    assert names(box, "main", "/src", include=["*.py"]) == ["/src/main.py"]
    assert names(box, "a b (1)") == ["/src/a b (1).txt"]
    assert names(box, "nothing at all") == []
    (disk / "src" / os.fsdecode(b"odd\xff.txt")).write_text("")
    assert names(box, "odd", "/src") == ["/src/odd\ufffd.txt"]
    body = box.post("search/filenames", {"query": "a", "path": "/src", "options": {"maxResults": 1}})
    assert (body["total"], body["truncated"]) == (1, True)


def test_a_listing_leaves_out_what_git_ignores(box: SandboxCaller, disk: Path) -> None:
    write(disk, w___DOT_gitignore="*.log\n/build/\n", w__a_DOT_log="", w__build__x="", w__src__x="", w___DOT_git__y="")
    write(disk, w__src__only__y_DOT_log="", w__src___DOT_gitignore="x\n", w__src__z="z")
    listed = {"dirPath": "/w", "recursive": True, "useGitignore": True}
    rows = box.post("files/list", listed)["files"]
    assert [row["path"] for row in rows] == ["/w/.gitignore", "/w/src", "/w/src/.gitignore", "/w/src/z"]
    assert rows[1]["type"] == "directory"
    assert [row["path"] for row in box.post("files/list", {**listed, "ignorePatterns": ["src"]})["files"]] == [
        "/w/.gitignore"
    ]
    assert [row["path"] for row in box.post("files/list", {"dirPath": "/w", "useGitignore": True})["files"]] == [
        "/w/.gitignore"
    ]
    assert box.refused("files/list", {**listed, "dirPath": "/w/src/z"})[:2] == (400, "path_invalid")


def test_what_the_program_prints_is_read_as_far_as_it_is_whole() -> None:
    printed = b"./a\x001:2:x\n./b: WARNING: stopped\n./c\x003:4:y\n./d\x005:6:"
    assert [(match.file, match.line, match.text) for match in read_matches(printed)] == [
        ("./a", 1, "x"),
        ("./c", 3, "y"),
    ]
    assert list(read_matches(b"\0\0\0nonsense\n\0")) == []


def test_a_program_that_is_gone_is_brought_again_once(
    box: SandboxCaller, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a session has found is gone once the machine has started again; its loader ends with 127 then."""
    write(disk, w__a="needle\n")
    there, asked = FakeGuestSession.search_tools, []
    gone = SearchTools(("sh", "-c", "echo cannot open >&2; exit 127"), ("sh",))

    async def first_gone(self: FakeGuestSession, *, again: bool = False) -> SearchTools:
        asked.append(again)
        return await there(self) if again else gone

    async def always_gone(self: FakeGuestSession, *, again: bool = False) -> SearchTools:
        asked.append(again)
        return gone

    monkeypatch.setattr(FakeGuestSession, "search_tools", first_gone)
    assert found(box, "needle", "/w") == [("/w/a", 1, 1, "needle")]
    assert names(box, "a", "/w") == ["/w/a"]
    assert asked == [False, True, False, True]
    monkeypatch.setattr(FakeGuestSession, "search_tools", always_gone)
    assert box.refused("search", {"query": "needle", "path": "/w"})[:2] == (409, "search_failed")
    assert asked[4:] == [False, True]
