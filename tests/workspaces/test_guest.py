"""Commands, files and logs of a running workspace (specification, Filesystem and Logs; wire contract, section 3)."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.conf import settings as django_settings
from django.test import AsyncClient
from django.utils import timezone

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from vmbackend.backend import machines_dir
from vmbackend.models import Host
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
FILES = "/workspace/the-box/overlay/files"
RAW = "application/octet-stream"


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace."""
    return api.post("/workspace", {"slug": "the-box"}).json()["workspace"]["id"]


def run(api: Caller, cmd: Any, **more: Any) -> dict[str, Any]:
    answer = api.post("/workspace/the-box/exec", {"cmd": cmd, **more})
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_a_command_answers_with_its_output(api: Caller, made: str) -> None:
    body = run(api, ["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert body["success"] is True
    assert (body["exit_code"], body["stdout"], body["stderr"]) == (3, "out\n", "err\n")
    assert (body["truncated"], body["timed_out"]) == (False, False)
    assert body["duration_ms"] >= 0


def test_a_string_is_run_by_a_shell_and_an_array_is_not(api: Caller, made: str) -> None:
    assert run(api, "echo $((2+3))")["stdout"] == "5\n"
    assert run(api, ["echo", "$((2+3))"])["stdout"] == "$((2+3))\n"


@pytest.mark.parametrize("env", [{"A": "x y"}, ["A=x y"], [{"key": "A", "value": "x y"}]])
def test_a_command_takes_an_environment(api: Caller, made: str, env: Any) -> None:
    assert run(api, 'echo "$A"', env=env)["stdout"] == "x y\n"


def test_a_command_takes_standard_input_and_a_directory(api: Caller, made: str) -> None:
    assert run(api, "cat", stdin=" first\nsecond ")["stdout"] == " first\nsecond "
    run(api, "mkdir -p deep && echo here > deep/note")
    assert run(api, "cat note", working_dir="/deep")["stdout"] == "here\n"


def test_a_command_that_takes_too_long_is_killed_with_all_it_began(api: Caller, made: str) -> None:
    began = timezone.now()
    body = run(api, "sleep 30 & sleep 30", timeout_seconds=1)
    assert (body["exit_code"], body["timed_out"]) == (124, True)
    assert (timezone.now() - began).total_seconds() < 5


def test_a_command_killed_by_a_signal_has_128_and_its_number(api: Caller, made: str) -> None:
    assert run(api, "kill -9 $$")["exit_code"] == 137


def test_output_that_is_no_utf8_or_too_much_is_told(api: Caller, made: str) -> None:
    assert run(api, r"printf 'a\377b'")["stdout"] == "a\ufffdb"
    body = run(api, "head -c 1500000 /dev/zero | tr '\\0' x")
    assert (len(body["stdout"]), body["truncated"], body["exit_code"]) == (1 << 20, True, 0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "cmd"), ({"cmd": ""}, "cmd"), ({"cmd": []}, "cmd"), ({"cmd": [""]}, "cmd"), ({"cmd": [1]}, "cmd"),
        ({"cmd": {"a": 1}}, "cmd"), ({"cmd": ["x"] * 257}, "cmd"), ({"cmd": "x" * 70000}, "cmd"),
        ({"cmd": "true", "env": {"A": 1}}, "env"), ({"cmd": "true", "env": {"1A": "x"}}, "env"),
        ({"cmd": "true", "env": "A=b"}, "env"), ({"cmd": "true", "stdin": 5}, "stdin"),
        ({"cmd": "true", "timeout_seconds": 0}, "timeout_seconds"),
        ({"cmd": "true", "timeout_seconds": 601}, "timeout_seconds"),
        ({"cmd": "true", "timeout_seconds": "5"}, "timeout_seconds"),
        ({"cmd": "true", "working_dir": 5}, "working_dir"), ({"cmd": "true", "user": ["root"]}, "user"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_400_and_named(api: Caller, made: str, body: Any, field: str) -> None:
    answer = api.post("/workspace/the-box/exec", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "validation_error")
    assert [name.split("[")[0].split(".")[0] for name in answer.json()["details"]] == [field]


@pytest.mark.parametrize("more", [{"cmd": ["/no/such/program"]}, {"working_dir": "/missing"}, {"user": "nobody-here"}])
def test_what_cannot_be_started_is_command_invalid(api: Caller, made: str, more: Any) -> None:
    answer = api.post("/workspace/the-box/exec", {"cmd": ["true"], **more})
    assert (answer.status_code, answer.json()["code"]) == (400, "command_invalid")


@pytest.mark.parametrize("status", [status for status in Status if status != Status.RUNNING])
def test_only_a_running_workspace_has_a_guest(api: Caller, status: Status) -> None:
    row = make_workspace(api.account, status=status)
    content = base64.b64encode(b"x").decode()
    for answer in (
        api.post(f"/workspace/{row.pk}/exec", {"cmd": "true"}),
        api.get(f"/workspace/{row.pk}/overlay"),
        api.get(f"/workspace/{row.pk}/overlay/files?path=/x"),
        api.post(f"/workspace/{row.pk}/overlay/files", {"path": "/x", "content": content}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "vm_not_running")
        assert answer.json()["details"]["status"] == status


def test_a_guest_that_does_not_answer_is_vm_unavailable(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.pause(made)  # behind our back
    answer = api.post("/workspace/the-box/exec", {"cmd": "true"})
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    answer, _ = ask(api, "GET", f"{FILES}?path=/x")
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")


def ask(api: Caller, method: str, path: str, body: Any = b"", kind: str = "application/json", **headers: str) -> Any:
    """Through ASGI, as the streams process serves it. Returns the response and its whole body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {**api.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}

    async def call() -> Any:
        client = AsyncClient()
        request: Awaitable[Any] = client.generic(method, path, data, content_type=kind, headers=sent)
        response = await asyncio.wait_for(request, 20)
        if not response.streaming:
            return response, response.content
        return response, b"".join([chunk async for chunk in response.streaming_content])

    return async_to_sync(call)()


def write(api: Caller, path: str, data: bytes) -> Any:
    return ask(api, "POST", FILES, {"path": path, "content": base64.b64encode(data).decode()})[0]


def read(api: Caller, path: str) -> bytes:
    answer, body = ask(api, "GET", f"{FILES}?path={path}")
    assert answer.status_code == 200, body
    shown = json.loads(body)
    assert (shown["success"], shown["path"], shown["encoding"]) == (True, path, "base64")
    data = base64.b64decode(shown["content"], validate=True)
    assert shown["size"] == len(data)
    return data


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


def test_a_listing(api: Caller, made: str) -> None:
    run(api, "mkdir d; printf abc > b; ln -s b l; mkfifo f; chmod 640 b; touch \"$(printf 'n\\377')\"")
    body = api.get("/workspace/the-box/overlay").json()
    assert (body["success"], body["path"], body["count"]) == (True, "/", 5)
    shown = {entry["name"]: entry for entry in body["entries"]}
    assert {name: entry["type"] for name, entry in shown.items()} == {
        "b": "file", "d": "directory", "f": "other", "l": "symlink", "n\ufffd": "file",
    }  # fmt: skip
    assert (shown["b"]["size"], shown["b"]["mode"], shown["b"]["path"]) == (3, 0o640, "/b")
    assert shown["l"]["target"] == "b"
    assert shown["b"]["modified"].endswith("Z")
    assert "target" not in shown["b"]
    assert api.get("/workspace/the-box/overlay?path=/d").json()["entries"] == []


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


def test_the_boot_log(api: Caller, vmhost: FakeHost, made: str) -> None:
    log = machines_dir() / "directories" / made / "boot.log"
    log.write_bytes(b"one\r\ntwo \xff\n\nthree\n" + b"".join(b"line %d\n" % n for n in range(200)))
    body = api.get("/workspace/the-box/logs").json()
    assert (body["success"], body["source"], len(body["logs"])) == (True, "boot", 100)
    last = body["logs"][-1]
    assert (last["line"], last["message"], last["stream"], last["source"]) == (
        "line 199", "line 199", "console", "boot",
    )  # fmt: skip
    every = api.get("/workspace/the-box/logs?tail_lines=10000&source=boot").json()["logs"]
    assert [entry["line"] for entry in every[:3]] == ["one", "two \ufffd", "three"]
    assert len(api.get("/workspace/the-box/logs?tail_lines=1").json()["logs"]) == 1


@pytest.mark.parametrize("query", ["tail_lines=0", "tail_lines=x", "tail_lines=10001", "source=elsewhere"])
def test_a_wrong_log_query_is_400(api: Caller, made: str, query: str) -> None:
    answer = api.get(f"/workspace/the-box/logs?{query}")
    assert (answer.status_code, list(answer.json()["details"])) == (400, [query.split("=", maxsplit=1)[0]])


def test_logs_of_a_stopped_workspace_are_there_and_of_a_machine_that_never_was_empty(
    api: Caller, vmhost: FakeHost, made: str
) -> None:
    api.post("/workspace/the-box/stop")
    assert api.get("/workspace/the-box/logs").json()["logs"][0]["line"] == "booted"
    row = make_workspace(api.account, status=Status.FAILED, host=Host.objects.get())
    assert api.get(f"/workspace/{row.pk}/logs").json()["logs"] == []
    unplaced = make_workspace(api.account, status=Status.FAILED)
    assert api.get(f"/workspace/{unplaced.pk}/logs").json()["logs"] == []
    assert Workspace.objects.count() == 3
