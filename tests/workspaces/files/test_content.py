"""The bytes of files: read and written, as JSON and raw."""

from __future__ import annotations

import base64
import json
import os
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from django.conf import settings as django_settings

from tests.callers import Caller
from tests.workspaces.files.calls import FILES, RAW, ask, read, run, write

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
    ("former", "given", "mode"),
    [
        (None, "0600", "0600"), (None, "755", "0755"), ("0644", "0600", "0600"), ("0600", "0644", "0600"),
        ("0640", None, "0640"),
    ],
)  # fmt: skip
def test_a_file_is_never_more_open_than_the_given_mode_and_the_former_file(
    api: Caller, made: str, former: str | None, given: str | None, mode: str
) -> None:
    if former:
        run(api, f"echo old >moded; chmod {former} moded")
    query = f"&mode={given}" if given else ""
    assert ask(api, "POST", f"{FILES}?path=/moded{query}", b"new", RAW)[0].status_code == 200
    answer, body = ask(api, "GET", f"{FILES}?path=/moded", Accept=RAW)
    assert (answer["X-File-Mode"], body) == (mode, b"new")
    assert ask(api, "HEAD", f"{FILES}?path=/moded", Accept=RAW)[0]["X-File-Mode"] == mode


@pytest.mark.parametrize("mode", ["", "8", "4755", "rw", "0x1ff", "-1"])
def test_what_is_no_mode_is_refused(api: Caller, made: str, mode: str) -> None:
    answer, _ = ask(api, "POST", f"{FILES}?path=/moded&mode={mode}", b"x", RAW)
    assert (answer.status_code, list(answer.json()["details"])) == (400, ["mode"])


@pytest.mark.parametrize("path", ["", "relative", "/nul%00", "/" + "x" * 5000])
def test_an_invalid_path_is_400(api: Caller, made: str, path: str) -> None:
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


def test_other_methods_and_missing_credentials_through_asgi(api: Caller, made: str) -> None:
    answer, _ = ask(api, "PUT", FILES)
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")
    answer, _ = ask(api, "GET", f"{FILES}?path=/x", X_Client_Secret="wrong")
    assert (answer.status_code, answer.json()["error"]) == (401, "Unauthorized")
    assert answer.json()["request_id"] == answer["X-Request-ID"]


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
