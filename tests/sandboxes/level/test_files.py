"""Files of a sandbox: listed, read, created, edited, moved, removed."""

from __future__ import annotations

import base64
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings

from tests.sandboxes.level.calls import SandboxCaller

pytestmark = pytest.mark.django_db(transaction=True)


def tree(disk: Path, *names: str) -> None:
    for name in names:
        place = disk / name
        if name.endswith("/"):
            place.mkdir(parents=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(name)


def shown(box: SandboxCaller, **fields: Any) -> list[str]:
    return [entry["path"] for entry in box.post("files/list", fields)["files"]]


def test_a_directory_is_listed(box: SandboxCaller, disk: Path) -> None:
    tree(disk, "w/b", "w/a/c", "w/empty/")
    found = box.post("files/list", {"dirPath": "/w", "includeHash": True})
    assert (found["path"], found["count"], found["truncated"]) == ("/w", 3, False)
    rows = [(row["name"], row["path"], row["type"]) for row in found["files"]]
    assert rows == [("a", "/w/a", "directory"), ("b", "/w/b", "file"), ("empty", "/w/empty", "directory")]
    assert found["files"][1]["hash"] == hashlib.sha256(b"w/b").hexdigest()
    assert "hash" not in found["files"][0]
    assert (found["files"][1]["size"], found["files"][1]["modified"][-1]) == (3, "Z")


def test_a_tree_is_listed_as_deep_as_wanted_without_what_is_ignored(box: SandboxCaller, disk: Path) -> None:
    tree(disk, "w/a/b/c", "w/node_modules/x", "w/a/node_modules/y", "w/z.log")
    assert shown(box, dirPath="/w/", recursive=True, ignorePatterns=["node_modules", "*.log"]) == [
        "/w/a", "/w/a/b", "/w/a/b/c",
    ]  # fmt: skip
    assert shown(box, dirPath="/w/a", recursive=True, maxDepth=2) == ["/w/a/b", "/w/a/b/c", "/w/a/node_modules",
                                                                     "/w/a/node_modules/y"]  # fmt: skip
    assert shown(box, dirPath="/w/a", maxDepth=2) == ["/w/a/b", "/w/a/node_modules"]


def test_links_are_shown_as_what_they_lead_to_and_not_entered(box: SandboxCaller, disk: Path) -> None:
    tree(disk, "w/folder/x")
    for name, target in (("to-folder", "folder"), ("to-file", "folder/x"), ("loop", "loop"), ("up", "..")):
        (disk / "w" / name).symlink_to(target)
    found = box.post("files/list", {"dirPath": "/w", "recursive": True})["files"]
    kinds = {row["path"]: (row["type"], row.get("target")) for row in found}
    assert kinds["/w/to-folder"] == ("directory", "folder")
    assert (kinds["/w/to-file"], kinds["/w/loop"]) == (("file", "folder/x"), ("file", "loop"))
    assert len(found) == 6


def test_a_name_that_is_no_text_can_be_used_by_its_encoded_path(box: SandboxCaller, disk: Path) -> None:
    (disk / "w").mkdir()
    Path(os.fsdecode(os.fsencode(disk / "w") + b"/\xff\n")).write_bytes(b"odd")
    row = box.post("files/list", {"dirPath": "/w", "includeHash": True})["files"][0]
    assert (row["path"], row["encodedPath"]) == ("/w/\ufffd\n", "/w/%FF%0A")
    path = {"encoded": row["encodedPath"]}
    assert box.post("files/get", {"filePath": path})["content"] == "odd"
    assert box.post("files/rename", {"sourcePath": path, "destinationPath": "/w/even"})["path"] == "/w/even"
    assert shown(box, dirPath="/w") == ["/w/even"]


def test_a_file_is_read_as_text_or_as_base64(box: SandboxCaller, disk: Path) -> None:
    (disk / "text").write_text("grün\n")
    found = box.post("files/get", {"filePath": "/text"})
    assert found == {"success": True, "path": "/text", "content": "grün\n", "size": 6, "lines": 1}
    (disk / "bytes").write_bytes(b"\xff\xfe")
    found = box.post("files/get", {"filePath": "/bytes", "withLineNumbers": True})
    assert (base64.b64decode(found["content"]), found["encoding"], found["lines"]) == (b"\xff\xfe", "base64", 1)
    (disk / "empty").write_bytes(b"")
    found = box.post("files/get", {"filePath": "/empty", "withLineNumbers": True})
    assert (found["content"], found["lines"], found["size"]) == ("", 0, 0)


def test_some_lines_of_a_file(box: SandboxCaller, disk: Path) -> None:
    (disk / "text").write_text("one\ntwo\nthree\nfour")
    read = {"filePath": "/text", "range": {"start": 2, "end": 3}}
    found = box.post("files/get", read)
    assert (found["content"], found["lines"], found["size"]) == ("two\nthree\n", 4, 18)
    assert box.post("files/get", {**read, "withLineNumbers": True})["content"] == "     2\ttwo\n     3\tthree\n"
    assert box.post("files/get", {**read, "range": {"start": 4}})["content"] == "four"
    assert box.post("files/get", {**read, "range": {"start": 9}})["content"] == ""
    for wrong, field in (
        ({"start": 0}, "range.start"),
        ({"start": 3, "end": 2}, "range.end"),
        ({"end": "x"}, "range.end"),
    ):
        assert list(box.refused("files/get", {**read, "range": wrong})[2]) == [field]


def test_a_text_above_the_limit_is_refused_and_its_lines_are_not(box: SandboxCaller, disk: Path) -> None:
    with (disk / "large").open("wb") as file:
        file.write(b"first\n")
        file.truncate(80 << 20)
    assert box.refused("files/get", {"filePath": "/large"})[:2] == (413, "payload_too_large")
    assert box.refused("files/get", {"filePath": "/large", "range": {"start": 2}})[:2] == (413, "payload_too_large")
    assert box.refused("files/edit", {"filePath": "/large", "edits": [{"oldText": "f", "newText": ""}]})[0] == 413
    found = box.post("files/get", {"filePath": "/large", "range": {"end": 1}})
    assert (found["content"], found["size"], found.get("lines")) == ("first\n", 80 << 20, None)


def test_a_file_is_created_once(box: SandboxCaller, disk: Path) -> None:
    body = {"fullPath": "/deep/er/file", "content": "a\0b"}
    assert box.post("files/create", body) == {"success": True, "path": "/deep/er/file", "size": 3}
    assert (disk / "deep/er/file").read_bytes() == b"a\0b"
    assert box.refused("files/create", {**body, "content": "other"})[:2] == (409, "path_exists")
    assert box.refused("files/create", {"fullPath": "/deep", "isFolder": True})[:2] == (409, "path_exists")
    assert (disk / "deep/er/file").read_bytes() == b"a\0b"
    (disk / "broken").symlink_to("nothing")
    assert box.refused("files/create", {"fullPath": "/broken"})[:2] == (409, "path_exists")
    made = box.post("files/create", {"parentPath": "/deep/", "fileName": "folder", "isFolder": True})
    assert (made["path"], made["size"], (disk / "deep/folder").is_dir()) == ("/deep/folder", 0, True)
    assert box.refused("files/create", {"fullPath": "/deep/er/file/below", "isFolder": True})[:2] == (
        400,
        "path_invalid",
    )


def test_of_many_creations_at_once_one_succeeds(box: SandboxCaller, disk: Path) -> None:
    def create(number: int) -> int:
        return box.ask("files/create", {"fullPath": "/one", "content": str(number)})[0].status_code

    with ThreadPoolExecutor(4) as pool:
        statuses = list(pool.map(create, range(8)))
    assert sorted(statuses) == [200] + 7 * [409]
    assert (disk / "one").read_text() == str(statuses.index(200))
    assert [name.name for name in disk.iterdir() if name.name.startswith(".partial")] == []


def test_all_edits_are_made_or_none(box: SandboxCaller, disk: Path) -> None:
    (disk / "code").write_bytes(b"one two two three\xff")
    (disk / "code").chmod(0o755)

    def edit(*pairs: tuple[str, str]) -> dict[str, Any]:
        return {"filePath": "/code", "edits": [{"oldText": old, "newText": new} for old, new in pairs]}

    for body, number, reason in (
        (edit(("one", "1"), ("four", "4")), 1, "not_found"),
        (edit(("two", "2")), 0, "found_more_than_once"),
        (edit(("one", "three"), ("three", "3")), 1, "found_more_than_once"),
    ):
        assert box.refused("files/edit", body) == (409, "edit_not_applicable", {"edit": number, "reason": reason})
    assert (disk / "code").read_bytes() == b"one two two three\xff"
    assert box.post("files/edit", edit(("one two", "1"), ("two", "2"), ("1", "one"))) == {
        "success": True, "path": "/code", "size": 12,
    }  # fmt: skip
    assert (disk / "code").read_bytes() == b"one 2 three\xff"
    assert (disk / "code").stat().st_mode & 0o777 == 0o755


def test_edits_of_one_file_at_once_are_all_made(box: SandboxCaller, disk: Path) -> None:
    (disk / "list").write_text("".join(f"<{number}>" for number in range(8)))

    def edit(number: int) -> int:
        edits = [{"oldText": f"<{number}>", "newText": f"[{number}]"}]
        return box.ask("files/edit", {"filePath": "/list", "edits": edits})[0].status_code

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(edit, range(8))) == 8 * [200]
    assert (disk / "list").read_text() == "".join(f"[{number}]" for number in range(8))


def test_a_files_content_is_replaced(box: SandboxCaller, disk: Path) -> None:
    (disk / "file").write_text("old")
    assert box.post("files/edit", {"filePath": "/file", "content": ""})["size"] == 0
    assert (disk / "file").read_text() == ""
    assert box.refused("files/edit", {"filePath": "/none", "content": "x"})[:2] == (404, "path_not_found")
    assert not (disk / "none").exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"filePath": "/f"}, "edits"),
        ({"filePath": "/f", "content": "", "edits": [{"oldText": "a", "newText": ""}]}, "edits"),
        ({"filePath": "/f", "edits": []}, "edits"),
        ({"filePath": "/f", "edits": [{"oldText": "", "newText": ""}]}, "edits.0.oldText"),
        ({"filePath": "/f", "edits": [{"oldText": "a"}]}, "edits.0.newText"),
        ({"filePath": "/f", "edits": [{"oldText": "a", "newText": ""}] * 101}, "edits"),
        ({"filePath": "/f", "content": 5}, "content"),
    ],
)
def test_an_edit_of_a_wrong_kind_is_400(box: SandboxCaller, body: Any, field: str) -> None:
    status, code, details = box.refused("files/edit", body)
    assert (status, code, list(details)) == (400, "validation_error", [field])


def test_files_links_and_trees_are_removed(box: SandboxCaller, disk: Path) -> None:
    tree(disk, "w/a/b/c", "kept")
    (disk / "w/link").symlink_to("../kept")
    (disk / "w/folder").symlink_to("../w/a")
    for path in ("/w/link", "/w/folder/", "/w"):
        assert box.post("files/delete", {"filePath": path})["path"] == path
    assert ((disk / "kept").read_text(), (disk / "w").exists()) == ("kept", False)
    assert box.refused("files/delete", {"filePath": "/w"})[:2] == (404, "path_not_found")
    for path in ("/", "/kept/..", "/."):
        assert box.refused("files/delete", {"filePath": path})[:2] == (400, "path_invalid")


def test_a_rename_replaces_nothing(box: SandboxCaller, disk: Path) -> None:
    tree(disk, "a/x", "b")
    for source, destination, status, code in (
        ("/a", "/b", 409, "path_exists"),
        ("/b", "/a", 409, "path_exists"),
        ("/c", "/d", 404, "path_not_found"),
        ("/b", "/no/b", 404, "path_not_found"),
        ("/a", "/a/inside", 400, "path_invalid"),
    ):
        assert box.refused("files/rename", {"sourcePath": source, "destinationPath": destination})[:2] == (status, code)
    assert box.post("files/rename", {"sourcePath": "/a", "destinationPath": "/c"})["path"] == "/c"
    assert ((disk / "c/x").read_text(), (disk / "b").read_text()) == ("a/x", "b")


def test_what_exists_and_what_it_is(box: SandboxCaller, disk: Path) -> None:
    tree(disk, "w/a")
    (disk / "link").symlink_to("w")
    for path, kind in (("/w", "directory"), ("/w/a", "file"), ("/link", "directory"), ("/no", None), ("/w/a/b", None)):
        assert box.post("files/exists", {"filePath": path}) == {
            "success": True,
            "exists": kind is not None,
            "type": kind,
        }


def test_bytes_are_uploaded_and_downloaded(box: SandboxCaller, disk: Path) -> None:
    data = os.urandom(700_001)
    body = {"content": base64.b64encode(data).decode(), "filePath": "/x/y"}
    assert box.post("files/upload", body) == {"success": True, "path": "/x/y", "size": len(data)}
    response, found = box.ask("files/download", {"filePath": "/x/y"})
    assert (found, response["Content-Type"], response["Content-Length"]) == (data, "application/octet-stream", "700001")
    assert box.post("files/upload", {**body, "content": ""})["size"] == 0
    assert box.ask("files/download", {"filePath": "/x/y"})[1] == b""
    assert box.refused("files/download", {"filePath": "/x"})[:2] == (400, "path_invalid")
    assert box.refused("files/upload", {"filePath": "/x/z", "content": "no base64!"})[0::2][0] == 400
    assert not (disk / "x/z").exists()


def test_an_upload_above_the_limit_is_refused(box: SandboxCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(django_settings, "FILE_WRITE_LIMIT", 9)
    body = {"filePath": "/f", "content": base64.b64encode(b"0123456789").decode()}
    assert box.refused("files/upload", body)[:2] == (413, "payload_too_large")


PATHS = {
    "files/list": "dirPath", "files/get": "filePath", "files/create": "fullPath", "files/edit": "filePath",
    "files/delete": "filePath", "files/exists": "filePath", "files/upload": "filePath", "files/download": "filePath",
    "files/rename": "sourcePath", "terminal": "cwd",
}  # fmt: skip


@pytest.mark.parametrize("route", PATHS)
def test_a_path_that_none_can_have_is_400_and_named(box: SandboxCaller, route: str) -> None:
    beside = {"content": "", "destinationPath": "/d", "command": "true"}
    long = {"encoded": "/" + "%C3" * 4095}
    for path in ("/a\0b", "/" + "x" * 4095, "/" + "ü" * 2048, "relative", "", 5, ["/x"], {"encoded": 5}, long):
        status, code, details = box.refused(route, {**beside, PATHS[route]: path})
        assert (status, code, list(details)) == (400, "validation_error", [PATHS[route]]), path


def test_a_sandbox_that_does_not_run_is_409(box: SandboxCaller, api: Any) -> None:
    api.post("/workspace/the-box/stop")
    for route, field in PATHS.items():
        body = {field: "/x", "content": "", "destinationPath": "/d", "command": "true"}
        assert box.refused(route, body)[:2] == (409, "vm_not_running"), route
