"""The bytes of files: read and written, as JSON and raw, in parts and under conditions."""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.test import AsyncClient

from tests.callers import Caller
from tests.workspaces.files.calls import FILES, RAW, ask, read, run, write
from workspaces.files.content import FileShrank

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 1000, 300_001])
def test_a_file_is_written_and_read_back(api: Caller, made: str, size: int) -> None:
    data = (bytes(range(256)) * 2000)[:size]
    answer = write(api, "/deep/er/file", data)
    assert (answer.status_code, answer.json()) == (200, {"success": True, "path": "/deep/er/file", "size": size})
    assert answer["X-Request-ID"]
    assert read(api, "/deep/er/file") == data


def test_raw_bytes_both_ways(api: Caller, made: str) -> None:
    data = bytes(range(256)) * 3000
    answer, _ = ask(api, "POST", f"{FILES}?path=/raw", data, RAW)
    assert answer.json() == {"success": True, "path": "/raw", "size": len(data)}
    answer, body = ask(api, "GET", f"{FILES}?path=/raw", Accept=RAW)
    assert (answer.status_code, answer["Content-Type"], body) == (200, RAW, data)
    assert answer["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize(
    ("asked", "status", "part", "told"),
    [
        ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
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
def test_ranges(api: Caller, made: str, asked: str, status: int, part: bytes | None, told: str | None) -> None:
    write(api, "/ten", b"0123456789")
    answer, body = ask(api, "GET", f"{FILES}?path=/ten", Accept=RAW, Range=asked)
    assert answer.status_code == status
    assert answer.get("Content-Range") == told
    if part is None:
        assert json.loads(body)["code"] == "range_not_satisfiable"
    else:
        assert body == part


@pytest.mark.parametrize("path", ["", "relative", "/nul%00", "/" + "x" * 5000])
def test_a_path_that_is_none_is_400(api: Caller, made: str, path: str) -> None:
    for answer in (ask(api, "GET", f"{FILES}?path={path}")[0], ask(api, "POST", f"{FILES}?path={path}", b"x", RAW)[0]):
        assert (answer.status_code, list(answer.json()["details"])) == (400, ["path"])
    if path:
        assert api.get(f"/workspace/the-box/overlay?path={path}").status_code == 400


@pytest.mark.parametrize("path", [None, 5, ["/x"], "x", "", "/a\0", "/\ud800"])
def test_a_path_of_another_kind_is_400_also_in_a_body(api: Caller, made: str, path: Any) -> None:
    answer, _ = ask(api, "POST", FILES, {"path": path, "content": ""})
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")


def test_paths_that_cannot_serve(api: Caller, made: str) -> None:
    run(api, "mkdir folder; echo x > file; ln -s loop loop; ln -s /../../../../../../etc/passwd out")
    for path, status, code in (
        ("/missing", 404, "path_not_found"),
        ("/loop", 404, "path_not_found"),
        ("/out", 404, "path_not_found"),
        ("/../../../../etc/passwd", 404, "path_not_found"),
        ("/folder", 400, "path_invalid"),
    ):
        answer, _ = ask(api, "GET", f"{FILES}?path={path}")
        assert (answer.status_code, answer.json()["code"]) == (status, code), path
    for path in ("/folder", "/file/below"):
        assert (write(api, path, b"x").status_code, read(api, "/file")) == (400, b"x\n")
    answer = api.get("/workspace/the-box/overlay?path=/missing")
    assert (answer.status_code, answer.json()["code"]) == (404, "path_not_found")
    answer = api.get("/workspace/the-box/overlay?path=/file")
    assert (answer.status_code, answer.json()["code"]) == (400, "path_invalid")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"path": "/kept", "content": "QUJD"', 400),
        (b'{"path": "/kept", "content": "QUJ', 400),
        (b'{"content": "QUJD", "path": "/kept"', 400),
        (b'{"path": "/kept", "content": "not base64!"}', 400),
        (b'{"path": "/kept", "content": "QQ"}', 400),
        (b'{"path": "/kept"}', 400),
        (b'{"path": "/kept", "content": 5}', 400),
        (b'[{"path": "/kept", "content": ""}]', 400),
        (b"", 400),
    ],
)
def test_a_broken_write_leaves_the_old_file(api: Caller, made: str, body: bytes, status: int) -> None:
    write(api, "/kept", b"old")
    answer, _ = ask(api, "POST", FILES, body)
    assert answer.status_code == status
    assert answer.json()["success"] is False
    assert read(api, "/kept") == b"old"
    assert [entry["name"] for entry in api.get("/workspace/the-box/overlay").json()["entries"]] == ["kept"]


def test_content_may_come_first_and_escaped(api: Caller, made: str) -> None:
    data = b"\xff\xfb\xef\xbe" * 9
    text = base64.b64encode(data).decode().replace("/", "\\/").replace("+", "\\u002b")
    assert "\\/" in text
    assert "\\u002b" in text
    answer, _ = ask(api, "POST", FILES, f'{{"content": "{text}", "other": [1], "path": "/esc\\u0061ped"}}'.encode())
    assert answer.json()["path"] == "/escaped"
    assert read(api, "/escaped") == data


def test_a_file_that_is_too_large_is_413_and_the_old_one_stays(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(api, "/kept", b"old")
    monkeypatch.setattr(django_settings, "FILE_WRITE_LIMIT", 1000)
    monkeypatch.setattr(django_settings, "FILE_STREAM_LIMIT", 1000)
    assert write(api, "/kept", b"x" * 1000).status_code == 200
    assert (write(api, "/kept", b"x" * 1001).status_code) == 413
    assert ask(api, "POST", f"{FILES}?path=/kept", b"x" * 1001, RAW)[0].status_code == 413
    assert ask(api, "POST", f"{FILES}?path=/kept", b"x" * 200_000, RAW)[0].json()["code"] == "payload_too_large"
    assert len(read(api, "/kept")) == 1000


def test_another_content_type_is_415(api: Caller, made: str) -> None:
    answer, _ = ask(api, "POST", FILES, b"x", "text/plain")
    assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


def test_other_methods_and_nobody_through_asgi(api: Caller, made: str) -> None:
    answer, _ = ask(api, "PUT", FILES)
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    answer, _ = ask(api, "GET", f"{FILES}?path=/x", X_Client_Secret="wrong")
    assert (answer.status_code, answer.json()["error"]) == (401, "Unauthorized")
    assert answer.json()["request_id"] == answer["X-Request-ID"]


def test_a_head_tells_the_size_and_reads_nothing(api: Caller, made: str) -> None:
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


def test_a_download_goes_on_only_where_the_file_is_still_the_same(api: Caller, disk: Path) -> None:
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


def test_a_file_too_large_for_json_is_read_raw(api: Caller, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(api, "/large", b"x" * 1001)
    monkeypatch.setattr(django_settings, "FILE_WRITE_LIMIT", 1000)
    answer, body = ask(api, "GET", f"{FILES}?path=/large")
    assert (answer.status_code, json.loads(body)["code"]) == (413, "payload_too_large")
    assert f"Accept: {RAW}" in json.loads(body)["message"]
    assert ask(api, "GET", f"{FILES}?path=/large", Accept=RAW)[1] == b"x" * 1001


@pytest.mark.parametrize("kind", ["directory", "fifo", "socket"])
def test_what_is_no_file_is_refused_both_ways(api: Caller, disk: Path, kind: str) -> None:
    place = disk / "it"
    if kind == "directory":
        place.mkdir()
    elif kind == "fifo":
        os.mkfifo(place)
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(place))
    for accept in (RAW, "application/json"):
        assert ask(api, "HEAD", f"{FILES}?path=/it", Accept=accept)[0].status_code == 400
        answer, body = ask(api, "GET", f"{FILES}?path=/it", Accept=accept)
        assert (answer.status_code, json.loads(body)["code"]) == (400, "path_invalid")
        assert "not a file" in json.loads(body)["message"]
    answer = write(api, "/it", b"x")
    assert (answer.status_code, answer.json()["code"]) == (400, "path_invalid")
    assert not place.is_file()


def test_a_link_is_written_through_and_one_that_leads_nowhere_is_refused(api: Caller, disk: Path) -> None:
    (disk / "real").write_bytes(b"old")
    (disk / "link").symlink_to("/real")
    assert write(api, "/link", b"new").status_code == 200
    assert ((disk / "real").read_bytes(), (disk / "link").is_symlink()) == (b"new", True)
    (disk / "nowhere").symlink_to("/missing")
    answer = write(api, "/nowhere", b"x")
    assert (answer.status_code, answer.json()["code"]) == (400, "path_invalid")
    assert not (disk / "missing").exists()


@pytest.mark.parametrize("path", ["/..", "/.", "/folder/..", "/folder/", "/"])
def test_a_path_that_names_a_folder_is_not_written(api: Caller, disk: Path, path: str) -> None:
    (disk / "folder").mkdir()
    answer = write(api, path, b"x")
    assert (answer.status_code, answer.json()["code"]) == (400, "path_invalid")
    assert [place.name for place in disk.rglob("*")] == ["folder"]


def test_dots_stay_inside(api: Caller, disk: Path) -> None:
    assert write(api, "/../../../../../../tmp/escaped", b"x").status_code == 200
    assert (disk / "tmp" / "escaped").read_bytes() == b"x"
    assert read(api, "/tmp/../../../tmp/escaped") == b"x"


@pytest.mark.parametrize(
    "name", [b"a\nb", b"\xff\xfe", b"-rf", b"$(id)", b"a b&c=d", b"\x01\x1b[2J", "\u2603".encode()]
)
def test_any_name_can_be_addressed_by_its_bytes(api: Caller, disk: Path, name: bytes) -> None:
    path = f"{FILES}?path=/{quote_from_bytes(name)}"
    answer, _ = ask(api, "POST", path, b"content", RAW)
    assert answer.status_code == 200
    assert [os.fsencode(place.name) for place in disk.iterdir()] == [name]
    assert ask(api, "GET", path, Accept=RAW)[1] == b"content"
    answer, body = ask(api, "GET", path)
    assert json.loads(body)["path"] == f"/{name.decode(errors='replace')}"


def test_a_query_of_very_many_fields_is_400(api: Caller, made: str) -> None:
    answer, _ = ask(api, "GET", f"{FILES}?path=/x&" + "a&" * 200 + "a=1&" * 200)
    assert answer.status_code == 400


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
