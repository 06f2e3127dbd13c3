"""`/files/read`, `write`, `mkdir`, `stat` and `delete`."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.workspaces.runtime.conftest import Holder
from tests.world import assert_error

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def disk(holder: Holder) -> Path:
    return holder.disk


def mode_of(place: Path) -> int:
    return stat.S_IMODE(place.stat().st_mode)


def test_a_file_is_written_and_read(holder: Holder, disk: Path) -> None:
    assert holder.posted("/files/write", {"path": "/a.py", "content": "one\ntwo\nthree\n"}) == {
        "success": True, "path": "/a.py", "size": 14,
    }  # fmt: skip
    assert holder.found("/files/read", path="/a.py") == {
        "success": True, "path": "/a.py", "content": "one\ntwo\nthree\n", "size": 14, "lines": 3, "extension": "py",
        "start_line": 1, "end_line": 3,
    }  # fmt: skip
    assert mode_of(disk / "a.py") == 0o644


def test_lines_of_a_file_are_read(holder: Holder, disk: Path) -> None:
    (disk / "a").write_text("one\ntwo\nthree")
    body = holder.found("/files/read", path="/a", start_line="2", end_line="9", with_line_numbers="true")
    assert (body["content"], body["start_line"], body["end_line"]) == ("     2\ttwo\n     3\tthree", 2, 3)
    assert (body["lines"], body["size"], body["extension"]) == (3, 13, "")
    body = holder.found("/files/read", path="/a", start_line="7")
    assert (body["content"], body["start_line"], body["end_line"]) == ("", 7, 6)
    answer = holder.ask("/files/read", path="/a", start_line="3", end_line="2")
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {"end_line"}


def test_bytes_that_are_no_text(holder: Holder, disk: Path) -> None:
    content = base64.b64encode(b"\xff\0").decode()
    assert holder.posted("/files/write", {"path": "/b", "content": content, "encoding": "base64"})["size"] == 2
    assert (disk / "b").read_bytes() == b"\xff\0"
    body = holder.found("/files/read", path="/b")
    assert (body["content"], body["encoding"]) == (content, "base64")


def test_a_large_text_is_refused(holder: Holder, disk: Path) -> None:
    with (disk / "big").open("wb") as file:
        file.truncate((16 << 20) + 1)
    assert_error(holder.ask("/files/read", path="/big"), 413, "payload_too_large")


def test_a_write_needs_its_folder_or_makes_it(holder: Holder, disk: Path) -> None:
    for append in (False, True):
        body = {"path": "/none/deep/x", "content": "x", "append": append}
        assert_error(holder.post("/files/write", body), 404, "path_not_found")
        assert not (disk / "none").exists()
    holder.posted("/files/write", {"path": "/none/deep/x", "content": "x", "create_dirs": True, "append": True})
    holder.posted("/files/write", {"path": "/none/deep/y", "content": "y", "create_dirs": True})
    assert (disk / "none" / "deep" / "x").read_text() == "x"
    for append in (False, True):
        body = {"path": "/none/deep/x/y", "content": "", "append": append}
        assert_error(holder.post("/files/write", body | {"create_dirs": True}), 400, "path_invalid")
        assert_error(holder.post("/files/write", body), 400, "path_invalid")
        assert_error(holder.post("/files/write", body | {"path": "/none/"}), 400, "path_invalid")


def test_an_append_gives_the_size_of_the_file(holder: Holder, disk: Path) -> None:
    for size in (3, 6):
        body = {"path": "/log", "content": "ab\n", "append": True, "mode": "0600"}
        assert holder.posted("/files/write", body)["size"] == size
    assert (disk / "log").read_text() == "ab\nab\n"
    assert mode_of(disk / "log") == 0o600


def test_a_write_gives_the_mode(holder: Holder, disk: Path) -> None:
    holder.posted("/files/write", {"path": "/x", "content": "1", "mode": "755"})
    assert mode_of(disk / "x") == 0o755
    holder.posted("/files/write", {"path": "/x", "content": "2"})
    assert (mode_of(disk / "x"), (disk / "x").read_text()) == (0o755, "2")
    assert [place.name for place in disk.iterdir() if place.name.startswith(".partial")] == []


def test_a_directory_is_made_once(holder: Holder, disk: Path) -> None:
    for mode in ("0700", "0755"):
        assert holder.posted("/files/mkdir", {"path": "/a/b", "mode": mode})["path"] == "/a/b"
    assert mode_of(disk / "a" / "b") == 0o700
    assert holder.posted("/files/mkdir", {"path": "/"})["path"] == "/"
    (disk / "file").touch()
    assert_error(holder.post("/files/mkdir", {"path": "/file"}), 400, "path_invalid")
    assert_error(holder.post("/files/mkdir", {"path": "/file/x"}), 400, "path_invalid")


def test_what_is_at_a_path(holder: Holder, disk: Path) -> None:
    (disk / "a.py").write_text("abc")
    (disk / "a.py").chmod(0o640)
    (disk / "link").symlink_to("a.py")
    body = holder.found("/files/stat", path="/a.py")
    assert body == {
        "success": True, "path": "/a.py", "name": "a.py", "type": "file", "size": 3, "modified": body["modified"],
        "permissions": "0640", "is_code": True, "extension": "py",
    }  # fmt: skip
    link = holder.found("/files/stat", path="/link")
    assert (link["type"], link["symlink_target"], link["is_code"]) == ("symlink", "a.py", False)
    folder = holder.found("/files/stat", path="/")
    assert (folder["type"], folder["name"], folder["is_code"]) == ("directory", "/", False)
    assert_error(holder.ask("/files/stat", path="/none"), 404, "path_not_found")


def test_a_path_is_removed_by_body_or_query(holder: Holder, disk: Path) -> None:
    (disk / "tree" / "deep").mkdir(parents=True)
    (disk / "tree" / "deep" / "x").touch()
    (disk / "link").symlink_to("tree")
    assert holder.posted("/files/delete", {"path": "/link"})["path"] == "/link"
    assert (disk / "tree").exists()
    assert holder.posted("/files/delete?path=/tree")["path"] == "/tree"
    assert not (disk / "tree").exists()
    assert_error(holder.post("/files/delete", {"path": "/tree"}), 404, "path_not_found")
    for path in ("/", "//", "/tree/..", "/."):
        assert_error(holder.post("/files/delete", {"path": path}), 400, "path_invalid")
    answer = holder.post("/files/delete")
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {"path"}


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"content": "x"}, "path"), ({"path": "x", "content": "x"}, "path"), ({"path": "/x\0", "content": "x"}, "path"),
        ({"path": "/x"}, "content"), ({"path": "/x", "content": 1}, "content"),
        ({"path": "/x", "content": "!", "encoding": "base64"}, "content"),
        ({"path": "/x", "content": "é", "encoding": "base64"}, "content"),
        ({"path": "/x", "content": "x", "encoding": "latin"}, "encoding"),
        ({"path": "/x", "content": "x", "mode": "888"}, "mode"), ({"path": "/x", "content": "x", "mode": 644}, "mode"),
        ({"path": "/x", "content": "x", "append": "true"}, "append"),
        ({"path": "/x", "content": "x", "create_dirs": 1}, "create_dirs"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named(holder: Holder, disk: Path, body: Any, name: str) -> None:
    answer = holder.post("/files/write", body)
    assert_error(answer, 400, "validation_error")
    assert set(answer.json()["details"]) == {name}
    assert not (disk / "x").exists()


def test_a_content_beyond_the_limit_is_refused(holder: Holder, disk: Path, settings: Any) -> None:
    settings.FILE_WRITE_LIMIT = 10
    assert_error(holder.post("/files/write", {"path": "/x", "content": "x" * 11}), 413, "payload_too_large")
    assert not (disk / "x").exists()


@pytest.mark.parametrize("path", ["/files", "/files/read?path=/x", "/files/stat?path=/x"])
def test_another_token_reaches_nothing(holder: Holder, path: str) -> None:
    assert_error(holder.send("GET", path, token="none"), 401, "unauthorized")
    assert_error(holder.send("POST", path), 405)


@pytest.mark.parametrize("action", ["write", "mkdir", "delete"])
def test_changes_need_the_token_too(holder: Holder, action: str) -> None:
    assert_error(holder.post(f"/files/{action}", {"path": "/x", "content": ""}, token="none"), 401, "unauthorized")
    assert_error(holder.ask(f"/files/{action}"), 405)
