"""The JSON routes of logs: the console's, the main program's and the workloads' (specification, Logs)."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import AsyncClient

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import bring, until
from vmbackend.backend import machines_dir
from vmbackend.bootlog import timestamp_prefix
from workspaces.models import Workspace
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
LOGS = "/workspace/the-box/logs"
WORKLOADS = [
    {"name": "web", "cmd": ["true"]},
    {"name": "jobs", "cmd": ["true"], "log_path": "/srv/out/jobs.txt"},
    {"name": "quiet", "cmd": ["true"], "log_path": "/dev/null"},
]


@pytest.fixture
def made(api: Caller, vmhost: FakeHost) -> str:
    """A running workspace with three workloads."""
    return api.post("/workspace", {"slug": "the-box", "config": {"workloads": WORKLOADS}}).json()["workspace"]["id"]


@pytest.fixture
def inside(made: str) -> Callable[[str], Path]:
    """A place in the guest, as this host sees it; its parents are made."""

    def place(path: str) -> Path:
        found = machines_dir() / "directories" / made / "disk" / path.lstrip("/")
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    return place


def console(made: str) -> Path:
    return machines_dir() / "directories" / made / "boot.log"


def shown(api: Caller, query: str = "") -> list[str]:
    answer = api.get(f"{LOGS}?{query}")
    assert answer.status_code == 200, answer.content
    return [entry["line"] for entry in answer.json()["logs"]]


def download(api: Caller, name: str, **headers: str) -> tuple[Any, bytes]:
    """As text."""

    async def get() -> tuple[Any, bytes]:
        wanted = {**api.headers, "Accept": "text/plain", **headers}
        answer: Any = await AsyncClient().get(f"{LOGS}/file/{name}", headers=wanted)
        if not answer.streaming:
            return answer, answer.content
        return answer, b"".join([chunk async for chunk in answer.streaming_content])

    return async_to_sync(get)()


def test_the_console_is_the_default_and_has_the_times_at_which_it_was_read(api: Caller, made: str) -> None:
    body = api.get(LOGS).json()
    assert (body["success"], body["source"]) == (True, "boot")
    (entry,) = body["logs"]
    assert entry.pop("timestamp").endswith("Z")
    assert entry == {"line": "booted", "message": "booted", "stream": "console", "source": "boot"}


def test_the_console_reaches_into_its_older_file(api: Caller, made: str) -> None:
    path = console(made)
    path.with_name("boot.log.1").write_bytes(b"".join(timestamp_prefix() + b"old %d\n" % number for number in range(3)))
    path.write_bytes(timestamp_prefix() + b"new\n")
    assert shown(api) == ["old 0", "old 1", "old 2", "new"]
    assert shown(api, "tail_lines=2") == ["old 2", "new"]
    path.with_name("boot.log.1").write_bytes(timestamp_prefix() + b"first ha")
    path.write_bytes(timestamp_prefix() + b"lf\n")
    assert shown(api) == ["first ha", "lf"]


@pytest.mark.parametrize(
    ("source", "path"),
    [("cmd", "/var/log/workspace/cmd.log"), ("web", "/var/log/workspace/web.log"), ("jobs", "/srv/out/jobs.txt")],
)
def test_lines_without_a_record_are_output(api: Caller, inside: Callable[[str], Path], source: str, path: str) -> None:
    inside(path).write_text(
        "2026-01-31T12:00:00Z stdout F other digits\n2026-99-31T12:00:00.000000000Z stderr F no time\n"
    )
    entries = api.get(f"{LOGS}?source={source}").json()["logs"]
    assert [(entry["line"][:10], entry["timestamp"], entry["stream"]) for entry in entries] == [
        ("2026-01-31", None, "stdout"),
        ("2026-99-31", None, "stdout"),
    ]


@pytest.mark.parametrize(
    ("source", "path", "stamped"),
    [
        ("cmd", "/var/log/workspace/cmd.log", True),
        ("web", "/var/log/workspace/web.log", True),
        ("jobs", "/srv/out/jobs.txt", False),
    ],
)
def test_records_of_the_guests_logger_have_time_and_stream(
    api: Caller, inside: Callable[[str], Path], source: str, path: str, stamped: bool
) -> None:
    record = "2026-01-31T12:00:00.123456789Z stderr F a b"
    inside(path).write_text(f"{record}\n2026-01-31T12:00:01.000000000Z stdout F \n")
    entries = api.get(f"{LOGS}?source={source}").json()["logs"]
    if stamped:
        (entry,) = entries
        assert (entry["line"], entry["timestamp"], entry["stream"]) == ("a b", "2026-01-31T12:00:00.123Z", "stderr")
    else:
        assert (entries[0]["line"], entries[0]["timestamp"], entries[0]["stream"]) == (record, None, "stdout")


@pytest.mark.parametrize(
    ("source", "path"),
    [("cmd", "/var/log/workspace/cmd.log"), ("web", "/var/log/workspace/web.log"), ("jobs", "/srv/out/jobs.txt")],
)
def test_a_program_has_a_log_of_its_own(api: Caller, inside: Callable[[str], Path], source: str, path: str) -> None:
    assert shown(api, f"source={source}") == []
    inside(f"{path}.2").write_text("one\n")
    inside(f"{path}.1").write_text("two\n\n")
    inside(path).write_text("three\r\nfour")
    assert shown(api, f"source={source}") == ["one", "two", "three", "four"]
    assert shown(api, f"source={source}&tail_lines=3") == ["two", "three", "four"]
    entry = api.get(f"{LOGS}?source={source}&tail_lines=1").json()["logs"][0]
    assert entry == {"line": "four", "message": "four", "timestamp": None, "stream": "stdout", "source": source}


@pytest.mark.parametrize("source", ["nothing", "../cmd", "x" * 64, "web.log"])
def test_an_unknown_source_is_refused_with_the_names_of_the_known_ones(api: Caller, made: str, source: str) -> None:
    answer = api.get(f"{LOGS}?source={source}")
    assert (answer.status_code, list(answer.json()["details"])) == (400, ["source"])
    assert "boot, cmd, jobs, quiet, web" in answer.json()["details"]["source"][0]


def test_lines_of_any_bytes_and_any_length_are_shown(api: Caller, inside: Callable[[str], Path]) -> None:
    inside("/var/log/workspace/cmd.log").write_bytes(b"\xff\xfe\x00ok\xc3\n" + b"x" * 20_000 + b"\n\x1b[31mred\n")
    found = shown(api, "source=cmd")
    assert found[0] == "\ufffd\ufffd\x00ok\ufffd"
    assert [len(line) for line in found[1:4]] == [8192, 8192, 20_000 - 2 * 8192]
    assert found[4] == "\x1b[31mred"


def test_the_end_of_a_gibibyte_is_shown_in_constant_memory(api: Caller, inside: Callable[[str], Path]) -> None:
    path = inside("/var/log/workspace/cmd.log")
    path.touch()
    os.truncate(path, 1 << 30)
    with path.open("ab") as log:
        log.write(b"\n" + b"".join(b"line %d\n" % number for number in range(20_000)))
    shown(api, "source=cmd")
    tracemalloc.start()
    try:
        assert shown(api, "source=cmd&tail_lines=3") == [f"line {number}" for number in range(19_997, 20_000)]
        assert len(shown(api, "source=cmd&tail_lines=10000")) == 10_000
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_a_log_without_line_ends_is_cut_at_a_mebibyte(api: Caller, inside: Callable[[str], Path]) -> None:
    inside("/var/log/workspace/cmd.log").write_bytes(b"y" * (3 << 20))
    assert sum(map(len, shown(api, "source=cmd&tail_lines=10000"))) <= 1 << 20


@pytest.mark.parametrize("kind", ["device", "folder", "loop", "fifo", "outside"])
def test_what_stands_in_the_place_of_a_log_breaks_nothing(
    api: Caller, inside: Callable[[str], Path], kind: str
) -> None:
    path = inside("/var/log/workspace/web.log")
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        target = {"device": "/dev/zero", "loop": "web.log", "outside": "../../../../../../../../etc/passwd"}[kind]
        path.symlink_to(target)
    assert shown(api, "source=web") == []
    assert "web.log" not in [file["name"] for file in api.get(f"{LOGS}/list").json()["files"]]
    assert download(api, "web.log")[0].status_code in (400, 404)
    assert api.delete(LOGS).status_code == 200


def test_a_clear_empties_every_log(api: Caller, vmhost: FakeHost, made: str, inside: Callable[[str], Path]) -> None:
    files = ["/var/log/workspace/cmd.log", "/var/log/workspace/cmd.log.1", "/srv/out/jobs.txt"]
    for path in files:
        inside(path).write_text("secret\n")
    inside("/srv/out/not-a-log").write_text("kept\n")
    answer = api.delete(LOGS)
    assert answer.status_code == 200
    assert answer.json()["message"]
    assert [inside(path).read_text() for path in files] == ["", "", ""]
    assert inside("/srv/out/not-a-log").read_text() == "kept\n"
    for source in ("boot", "cmd", "jobs"):
        assert shown(api, f"source={source}") == []
    assert api.delete(LOGS).status_code == 200
    bring(api, vmhost, made, Status.STOPPED)
    api.post("/workspace/the-box/start")
    assert shown(api) == ["booted"]


@pytest.mark.parametrize("status", [Status.QUEUED, Status.CREATING, Status.FAILED, Status.DESTROYED])
def test_without_a_machine_there_is_nothing_to_clear(api: Caller, status: Status) -> None:
    row = make_workspace(api.account, status=status)
    assert api.delete(f"/workspace/{row.pk}/logs").status_code == 200
    assert api.get(f"/workspace/{row.pk}/logs/list").json() == {"success": True, "files": [], "complete": True}


@pytest.mark.parametrize("keep", [True, False])
def test_the_console_of_earlier_starts_stays_or_goes(api: Caller, vmhost: FakeHost, keep: bool) -> None:
    api.post("/workspace", {"slug": "the-box", "config": {"keep_logs": keep}})
    api.post("/workspace/the-box/stop")
    api.post("/workspace/the-box/start")
    assert shown(api) == ["booted"] * (2 if keep else 1)


def test_a_host_or_guest_that_does_not_answer_is_vm_unavailable(
    api: Caller, vmhost: FakeHost, made: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("workspaces.host_rpc.REPLY_SECONDS", 0.2)
    vmhost.hold_tasks()
    for path in ("", "/list", "/file/boot.log"):
        answer = api.get(f"{LOGS}{path}")
        assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
    vmhost.release_tasks()
    vmhost.driver.kill(made)
    until(lambda: Workspace.objects.get(pk=made).status != Status.RUNNING)
    Workspace.objects.filter(pk=made).update(status=Status.RUNNING)
    answer = api.get(f"{LOGS}?source=cmd")
    assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")
