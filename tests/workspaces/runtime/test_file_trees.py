"""`GET /files`: what of a tree is listed, and how."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.runtime.conftest import Holder
from tests.world import assert_error
from workspaces.runtime.files import ignored, trees

pytestmark = pytest.mark.django_db(transaction=True)
needs_ripgrep = pytest.mark.skipif(shutil.which("rg") is None, reason="needs ripgrep")


@pytest.fixture
def disk(holder: Holder) -> Path:
    return holder.disk


def write(disk: Path, **files: str) -> None:
    for name, content in files.items():
        place = disk / name.replace("__", "/").replace("_DOT_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)


def paths(holder: Holder, **query: str) -> list[str]:
    return [entry["path"] for entry in holder.found("/files", **query)["entries"]]


def test_a_directory_is_listed(holder: Holder, disk: Path) -> None:
    write(disk, w__b_DOT_py="12345", w__a__deep="x")
    (disk / "w" / "link").symlink_to("b.py")
    os.mkfifo(disk / "w" / "pipe")
    body = holder.found("/files", path="/w")
    assert (body["path"], body["count"], body["truncated"]) == ("/w", 4, False)
    shown = [(entry["name"], entry["path"], entry["type"]) for entry in body["entries"]]
    assert shown == [
        ("a", "/w/a", "directory"), ("b.py", "/w/b.py", "file"), ("link", "/w/link", "symlink"),
        ("pipe", "/w/pipe", "other"),
    ]  # fmt: skip
    assert body["entries"][1].keys() == {"name", "path", "type", "size", "modified"}
    assert (body["entries"][1]["size"], body["entries"][2]["target"]) == (5, "b.py")


def test_without_a_path_the_home_is_listed(holder: Holder, disk: Path) -> None:
    write(disk, top="x")
    body = holder.found("/files")
    assert body["path"] == "/"
    assert "/top" in [entry["path"] for entry in body["entries"]]


def test_all_that_is_below_is_a_list_or_a_tree(holder: Holder, disk: Path) -> None:
    write(disk, w__a__b__c="x", w__d="y")
    assert paths(holder, path="/w", flatten="true") == ["/w/a", "/w/a/b", "/w/a/b/c", "/w/d"]
    assert paths(holder, path="/w", flatten="true", max_depth="2") == ["/w/a", "/w/a/b", "/w/d"]
    body = holder.found("/files", path="/w", nested="true")
    (a, d) = body["entries"]
    assert body["count"] == 4
    assert (a["path"], d["path"], "children" in d) == ("/w/a", "/w/d", False)
    assert [entry["path"] for entry in a["children"][0]["children"]] == ["/w/a/b/c"]
    (a,) = holder.found("/files", path="/w", nested="true", max_depth="1", path_filter="/a")["entries"]
    assert a["children"] == []
    assert paths(holder, path="/w", nested="true", flatten="true") == ["/w/a", "/w/a/b", "/w/a/b/c", "/w/d"]


def test_filters_choose(holder: Holder, disk: Path) -> None:
    write(disk, w__src__a_DOT_PY="x", w__src__b_DOT_ts="x", w__c_DOT_txt="x", w__skip__d_DOT_py="x", w__Makefile="x")
    tree = {"path": "/w", "flatten": "true"}
    assert paths(holder, **tree, include_ext="py,ts") == [
        "/w/skip",
        "/w/skip/d.py",
        "/w/src",
        "/w/src/a.PY",
        "/w/src/b.ts",
    ]
    assert paths(holder, **tree, include_ext=".ts") == ["/w/skip", "/w/src", "/w/src/b.ts"]
    assert "/w/c.txt" not in paths(holder, **tree, code_files_only="true")
    assert "/w/Makefile" in paths(holder, **tree, code_files_only="true")
    assert paths(holder, **tree, path_filter="src/b") == ["/w/src/b.ts"]
    assert paths(holder, **tree, path_filter="*.t?") == ["/w/src/b.ts"]
    assert paths(holder, **tree, path_filter="src/*") == ["/w/src/a.PY", "/w/src/b.ts"]
    assert paths(holder, **tree, ignore_patterns="skip,*.txt,Make*") == ["/w/src", "/w/src/a.PY", "/w/src/b.ts"]
    (src,) = holder.found("/files", path="/w", nested="true", path_filter="src/b")["entries"]
    assert (src["path"], [entry["path"] for entry in src["children"]]) == ("/w/src", ["/w/src/b.ts"])


def test_a_light_listing_has_three_fields(holder: Holder, disk: Path) -> None:
    write(disk, w__a_DOT_py="x")
    asked = dict.fromkeys(("light", "include_hash", "include_content", "include_extensions"), "true")
    assert holder.found("/files", path="/w", **asked)["entries"] == [
        {"name": "a.py", "path": "/w/a.py", "type": "file"}
    ]


def test_hashes_and_extensions(holder: Holder, disk: Path) -> None:
    write(disk, w__a_DOT_py="x", w___DOT_hidden="y")
    hidden, a = holder.found("/files", path="/w", include_hash="true", include_extensions="true")["entries"]
    assert (a["extension"], a["hash"]) == ("py", hashlib.sha256(b"x").hexdigest())
    assert "extension" not in hidden


def contents(holder: Holder, **query: str) -> dict[str, Any]:
    body = holder.found("/files", path="/w", include_content="true", **query)
    return {entry["name"]: entry.get("content") for entry in body["entries"]}


def test_texts_are_shown_while_the_budget_lasts(holder: Holder, disk: Path) -> None:
    write(disk, w__a="12345", w__b="1234567890", w__c="67", w__empty="")
    (disk / "w" / "bytes").write_bytes(b"\xff\xfe")
    (disk / "w" / "nul").write_bytes(b"\0")
    (disk / "w" / "link").symlink_to("a")
    found = contents(holder)
    assert found == {
        "a": "12345", "b": "1234567890", "bytes": None, "c": "67", "empty": "", "link": None, "nul": None,
    }  # fmt: skip
    found = contents(holder, max_content_budget="9")
    assert (found["a"], found["b"], found["c"]) == ("12345", None, "67")
    assert set(contents(holder, max_content_budget="0").values()) == {None}


@needs_ripgrep
def test_what_git_ignores_is_left_out(holder: Holder, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(disk, w___DOT_gitignore="*.log\nbuild/\n", w__a_DOT_log="x", w__build__x="x", w__src__deep__b="x", w__z="x")
    tree = {"path": "/w", "use_gitignore": "true", "flatten": "true"}
    expected = ["/w/.gitignore", "/w/src", "/w/src/deep", "/w/src/deep/b", "/w/z"]
    assert paths(holder, **tree) == expected
    monkeypatch.setattr(ignored, "MOST_NAMES", 2)
    assert paths(holder, **tree) == expected
    assert paths(holder, **tree, ignore_patterns="src") == ["/w/.gitignore", "/w/z"]
    assert paths(holder, path="/w", use_gitignore="true") == ["/w/.gitignore", "/w/z"]
    assert_error(holder.ask("/files", path="/w/z", use_gitignore="true"), 400, "path_invalid")
    assert_error(holder.ask("/files", path="/none", use_gitignore="true"), 404, "path_not_found")


def test_a_listing_has_a_limit_after_its_filters(holder: Holder, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "LIST_LIMIT", 2)
    write(disk, w__a="x", w__b="x", w__c_DOT_py="x", w__d_DOT_py="x")
    body = holder.found("/files", path="/w")
    assert (body["count"], body["truncated"]) == (2, True)
    body = holder.found("/files", path="/w", include_ext="py")
    assert ([entry["name"] for entry in body["entries"]], body["truncated"]) == (["c.py", "d.py"], False)
    monkeypatch.setattr(trees, "LIST_BYTES", 1)
    assert holder.found("/files", path="/w")["count"] == 1


def test_names_that_are_not_utf8(holder: Holder, disk: Path) -> None:
    (disk / "w" / "\udcff" / "inner").mkdir(parents=True)
    body = holder.found("/files", path="/w", flatten="true")
    assert [(entry["path"], entry["encodedPath"]) for entry in body["entries"]] == [
        ("/w/\ufffd", "/w/%FF"), ("/w/\ufffd/inner", "/w/%FF/inner"),
    ]  # fmt: skip
    body = holder.found("/files", path=b"/w/\xff")
    assert (body["path"], body["encodedPath"], body["count"]) == ("/w/\ufffd", "/w/%FF", 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("path", "relative"), ("path", "/a\0"), ("path", "/" + "x" * 4096), ("nested", "yes"), ("nested", ""),
        ("max_depth", "0"), ("max_depth", "65"), ("max_depth", "1.5"), ("max_depth", "x"), ("max_depth", "9" * 30),
        ("ignore_patterns", "\n"), ("ignore_patterns", ",".join("x" * 101)), ("path_filter", "\0"),
        ("path_filter", b"\xff"), ("include_ext", b"\xff"), ("max_content_budget", "-1"),
        ("max_content_budget", str((16 << 20) + 1)),
    ],
)  # fmt: skip
def test_a_wrong_parameter_is_named(holder: Holder, name: str, value: Any) -> None:
    answer = holder.ask("/files", **{name: value})
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {name}


def test_unknown_parameters_are_ignored_and_the_last_of_two_counts(holder: Holder, disk: Path) -> None:
    write(disk, w__a="x")
    assert holder.found("/files", path="/w", unknown="\0")["count"] == 1
    assert holder.send("GET", "/files?path=relative&path=/w&x=%FF").json()["count"] == 1
    assert_error(holder.send("GET", "/files?" + "&".join("a=1" for _ in range(200))), 400, "validation_error")


def test_other_kinds_of_places(holder: Holder, disk: Path) -> None:
    write(disk, w__a="x")
    assert_error(holder.ask("/files", path="/none"), 404, "path_not_found")
    assert_error(holder.ask("/files", path="/w/a"), 400, "path_invalid")


def test_it_is_below_both_names_of_the_target(holder: Holder, disk: Path) -> None:
    write(disk, w__a="x")
    for target in ("default", "local"):
        assert holder.found(f"/runtimes/{target}/files", path="/w")["count"] == 1
    assert_error(holder.ask("/runtimes/other/files", path="/w"), 404)
