"""`/files/search...`, by the ripgrep of this host."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.runtime.conftest import Holder
from tests.world import assert_error
from vmbackend.fake.guest import FakeGuestSession

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(shutil.which("rg") is None, reason="needs ripgrep"),
]


@pytest.fixture
def disk(holder: Holder) -> Path:
    return holder.disk


def write(disk: Path, **files: str) -> None:
    for name, content in files.items():
        place = disk / name.replace("__", "/").replace("_DOT_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)


def lines(holder: Holder, q: str, **query: str) -> list[tuple[str, int]]:
    results = holder.found("/files/search", q=q, path="/w", **query)["results"]
    return [(file, match["line"]) for file, matches in results.items() for match in matches]


def test_matches_are_by_file(holder: Holder, disk: Path) -> None:
    write(disk, w__a="one\ntwo needle needle\nneedle\n", w__b__c="Needle", w__d="nothing")
    assert holder.found("/files/search", q="needle", path="/w") == {
        "success": True, "query": "needle", "path": "/w", "capped": False, "total_matches": 3, "total_files": 2,
        "results": {
            "/w/a": [
                {"line": 2, "column": 5, "text": "two needle needle"}, {"line": 3, "column": 1, "text": "needle"},
            ],
            "/w/b/c": [{"line": 1, "column": 1, "text": "Needle"}],
        },
    }  # fmt: skip
    assert holder.found("/files/search", q="nothing")["results"] == {
        "/w/d": [{"line": 1, "column": 1, "text": "nothing"}]
    }
    assert holder.found("/files/search", q="needle", path="/w/a")["total_matches"] == 2
    assert_error(holder.ask("/files/search", q="x", path="/none"), 404, "path_not_found")


def test_the_parameters_choose(holder: Holder, disk: Path) -> None:
    write(disk, w__a_DOT_c="A.B\naxb\nna.bn", w__b_DOT_py="a.b\n", w__skip__c_DOT_c="a.b\n", w___DOT_h="a.b")
    write(disk, w___DOT_gitignore="*.py\n")
    assert lines(holder, "a.b") == [("/w/a.c", 1), ("/w/a.c", 3), ("/w/skip/c.c", 1)]
    assert lines(holder, "a.b", case_sensitive="true") == [("/w/a.c", 3), ("/w/skip/c.c", 1)]
    assert lines(holder, "a.b", whole_word="true") == [("/w/a.c", 1), ("/w/skip/c.c", 1)]
    assert lines(holder, "a.b", regex="true", ignore_patterns="skip") == [("/w/a.c", 1), ("/w/a.c", 2), ("/w/a.c", 3)]
    assert lines(holder, "a.b", file_types="py,.h") == []
    assert lines(holder, "a.b", file_types="py,.h", no_gitignore="true") == [("/w/b.py", 1)]
    assert lines(holder, "a.b", include_hidden="true", ignore_patterns="*.c") == [("/w/.h", 1)]


def test_lines_around_a_match(holder: Holder, disk: Path) -> None:
    write(disk, w__a="1\n2-x\nneedle\nneedle\n5:x\n6\n7\n8\nneedle", w__b="needle")
    body = holder.found("/files/search", q="needle", path="/w", context_lines="2")
    shown = [(match["line"], match["before"], match["after"]) for match in body["results"]["/w/a"]]
    assert shown == [
        (3, ["1", "2-x"], ["needle", "5:x"]), (4, ["2-x", "needle"], ["5:x", "6"]), (9, ["7", "8"], []),
    ]  # fmt: skip
    assert body["results"]["/w/b"] == [{"line": 1, "column": 1, "text": "needle", "before": [], "after": []}]
    assert body["total_matches"] == 4


def test_a_search_is_capped(holder: Holder, disk: Path) -> None:
    write(disk, w__a="needle\n" * 50)
    body = holder.found("/files/search", q="needle", path="/w", max_results="7", context_lines="1")
    assert (body["total_matches"], body["capped"]) == (7, True)
    write(disk, **{f"w__needle{number}": "" for number in range(9)})
    body = holder.found("/files/search/files", q="needle", path="/w", max_results="7")
    assert (body["total_files"], len(body["files"]), body["capped"]) == (7, 7, True)


def test_files_are_found_by_their_names(holder: Holder, disk: Path) -> None:
    write(disk, w__Needle_DOT_py="", w__b__needle="", w___DOT_needle="", w__other="", w__x__needle="")
    body = holder.found("/files/search/files", q="needle", path="/w", ignore_patterns="x")
    assert body == {
        "success": True, "query": "needle", "path": "/w", "files": ["/w/Needle.py", "/w/b/needle"], "total_files": 2,
        "capped": False,
    }  # fmt: skip
    hidden = holder.found("/files/search/files", q="needle", path="/w", include_hidden="true", case_sensitive="true")
    assert hidden["files"] == ["/w/.needle", "/w/b/needle", "/w/x/needle"]
    assert_error(holder.ask("/files/search/files", q="x", path="/none"), 404, "path_not_found")


def test_a_name_that_is_not_utf8_is_shown(holder: Holder, disk: Path) -> None:
    (disk / "w").mkdir()
    (disk / "w" / os.fsdecode(b"needle\xff")).write_bytes(b"needle \xff")
    assert holder.found("/files/search/files", q="needle", path="/w")["files"] == ["/w/needle\ufffd"]
    assert list(holder.found("/files/search", q="needle", path="/w")["results"]) == ["/w/needle\ufffd"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("q", ""), ("q", "a\0"), ("q", "x" * 10_001), ("q", b"\xff"), ("path", "w"), ("regex", "1"), ("timeout", "61"),
        ("timeout", "0"), ("context_lines", "11"), ("context_lines", "-1"), ("max_results", "1001"),
        ("max_results", "0"), ("file_types", "a/b"), ("file_types", "*"), ("ignore_patterns", "!a"),
        ("ignore_patterns", "a{"), ("ignore_patterns", "\0"), ("include_hidden", "True"),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named(holder: Holder, disk: Path, name: str, value: Any) -> None:
    answer = holder.ask("/files/search", **{"q": "x", "path": "/", name: value})
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {name}


def test_a_wrong_expression_is_named(holder: Holder, disk: Path) -> None:
    answer = holder.ask("/files/search", q="(", path="/", regex="true")
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {"q"}
    assert_error(holder.ask("/files/search"), 400, "validation_error")


def test_the_program_is_looked_for_and_brought(holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    brought = holder.posted("/files/search/init")
    assert brought["installed"] is True
    assert brought["path"].endswith("/rg")
    assert brought["version"][0].isdigit()
    assert holder.found("/files/search/init") == brought

    async def none(session: FakeGuestSession) -> None:
        return None

    monkeypatch.setattr(FakeGuestSession, "find_search_tools", none)
    assert holder.found("/files/search/init") == {"success": True, "installed": False, "path": None, "version": None}


@pytest.mark.parametrize("path", ["/files/search?q=x", "/files/search/files?q=x", "/files/search/init"])
def test_it_takes_the_token(holder: Holder, path: str) -> None:
    assert_error(holder.send("GET", path, token="none"), 401, "unauthorized")
    assert_error(holder.send("DELETE", path), 405)
