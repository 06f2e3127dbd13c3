"""Directories, the disk's usage and its sync."""

from __future__ import annotations

import base64
import os
import shutil
import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest
from rest_framework.serializers import IntegerField

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.files.calls import FILES, LISTING, ask, run, write
from tests.workspaces.rows import make_workspace
from vmbackend.fake.guest import FakeGuestSession
from vmbackend.guest.session import DiskUsage, Entry
from workspaces.files import serializers
from workspaces.files.serializers import FileEntry, UsageResponse
from workspaces.states import Status

pytestmark = pytest.mark.django_db(transaction=True)
HOSTILE = [
    b"-rf",
    b"a\nb",
    b"\xff\xfe",
    b"$(id)",
    b"..x",
    "\u00fc".encode(),
    b"a;b",
    b"\x01\x7f\x1b[0m",
    b"x" * 255,
    b"*",
    b" ",
]


def test_a_listing(api: Caller, made: str) -> None:
    run(api, "mkdir d; printf abc > b; ln -s b l; mkfifo f; chmod 640 b; touch \"$(printf 'n\\377')\"")
    body = api.get(LISTING).json()
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


def test_names_that_the_platform_makes_are_not_listed(api: Caller, made: str) -> None:
    run(api, "touch .partial-0123456789abcdef .files-0123456789abcdef .ask-0123456789abcdef .ask-config .partial-mine")
    assert [entry["name"] for entry in api.get(LISTING).json()["entries"]] == [".ask-config", ".partial-mine"]


def pages(api: Caller, path: str, limit: int) -> list[dict[str, Any]]:
    """Every page of a directory."""
    found, cursor = [], ""
    while True:
        page = api.get(f"{LISTING}?path={path}&limit={limit}&cursor={cursor}").json()
        found.append(page)
        assert page["truncated"] is (page["next_cursor"] is not None)
        if not page["truncated"]:
            return found
        cursor = page["next_cursor"]


@pytest.mark.parametrize("limit", [1, 3, 10, 11, 10_000])
def test_pages_hold_every_name_once_and_in_order(api: Caller, disk: Path, limit: int) -> None:
    for name in HOSTILE:
        (disk / os.fsdecode(name)).write_bytes(b"")
    found = pages(api, "/", limit)
    names = [
        entry.get("encoded_path") or quote_from_bytes(entry["path"].encode())
        for page in found
        for entry in page["entries"]
    ]
    assert sorted(names) == sorted(f"/{quote_from_bytes(name)}" for name in HOSTILE)
    assert all(page["count"] == len(page["entries"]) <= limit for page in found)
    assert len(found) == -(-len(HOSTILE) // limit)


def test_names_are_shown_and_those_that_cannot_be_are_addressed_otherwise(api: Caller, disk: Path) -> None:
    (disk / os.fsdecode(b"d\xff")).mkdir()
    (disk / os.fsdecode(b"d\xff") / "a\nb").write_bytes(b"inside")
    entry = api.get(LISTING).json()["entries"][0]
    assert (entry["name"], entry["path"], entry["encoded_path"]) == ("d\ufffd", "/d\ufffd", "/d%FF")
    below = api.get(f"{LISTING}?path={entry['encoded_path']}").json()
    assert (below["path"], below["entries"][0]["name"]) == ("/d\ufffd", "a\nb")
    _, body = ask(api, "GET", f"{FILES}?path={below['entries'][0]['encoded_path']}", Accept="application/octet-stream")
    assert body == b"inside"


def test_entries_created_between_requests_do_not_shift_the_pages(api: Caller, disk: Path) -> None:
    for name in "bdf":
        (disk / name).touch()
    first = api.get(f"{LISTING}?limit=2").json()
    assert [entry["name"] for entry in first["entries"]] == ["b", "d"]
    for name in "ace":
        (disk / name).touch()
    (disk / "d").unlink()
    second = api.get(f"{LISTING}?limit=2&cursor={first['next_cursor']}").json()
    assert [entry["name"] for entry in second["entries"]] == ["e", "f"]
    assert second["truncated"] is False


def test_everything_is_listed_for_what_it_is(api: Caller, disk: Path) -> None:
    os.mkfifo(disk / "fifo")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(disk / "socket"))
    (disk / "loop").symlink_to("loop")
    (disk / "dangling").symlink_to("/nowhere/\udcff")
    (disk / "closed").mkdir(mode=0)
    entries = {entry["name"]: entry for entry in api.get(LISTING).json()["entries"]}
    assert {name: entry["type"] for name, entry in entries.items()} == {
        "fifo": "other", "socket": "other", "loop": "symlink", "dangling": "symlink", "closed": "directory",
    }  # fmt: skip
    assert (entries["loop"]["target"], entries["dangling"]["target"]) == ("loop", "/nowhere/\ufffd")
    assert entries["closed"]["mode"] == 0
    assert api.get(f"{LISTING}?path=/closed").json()["entries"] == []
    assert api.get(f"{LISTING}?path=/loop").status_code == 404


@pytest.mark.parametrize("query", ["limit=0", "limit=10001", "limit=x", "cursor=%21", "cursor=A", "cursor=AA%3D%3D"])
def test_a_wrong_page_is_400_and_named(api: Caller, made: str, query: str) -> None:
    answer = api.get(f"{LISTING}?{query}")
    assert (answer.status_code, list(answer.json()["details"])) == (400, [query.split("=", maxsplit=1)[0]])


def test_without_a_limit_a_directory_is_bounded_and_says_so(
    api: Caller, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        (disk / f"{number:02}").touch()
    monkeypatch.setitem(serializers.ListingQuery._declared_fields, "limit", IntegerField(default=10))
    body = api.get(LISTING).json()
    assert (body["count"], body["truncated"]) == (10, True)


def test_usage_is_that_of_the_disk(api: Caller, made: str) -> None:
    before = api.get(f"{LISTING}/usage").json()
    assert set(before) == {"success", "total_bytes", "used_bytes", "available_bytes", "percent"}
    write(api, "/mebibyte", bytes(1 << 20))
    after = api.get(f"{LISTING}/usage").json()
    assert after["used_bytes"] - before["used_bytes"] == 1 << 20
    assert after["total_bytes"] == before["total_bytes"] > after["used_bytes"]
    assert after["percent"] == round(100 * after["used_bytes"] / after["total_bytes"], 1) > 0


def test_a_guest_that_reports_more_than_its_disk_is_believed_up_to_the_disks_size(
    api: Caller, made: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = api.get(f"{LISTING}/usage").json()["total_bytes"]

    async def lies(session: FakeGuestSession) -> DiskUsage:
        return DiskUsage(1 << 62, 1 << 61, 1 << 60)

    monkeypatch.setattr(FakeGuestSession, "disk_usage", lies)
    body = api.get(f"{LISTING}/usage").json()
    assert (body["total_bytes"], body["used_bytes"], body["available_bytes"]) == (size, size, 0)


def test_usage_of_a_disk_without_size_is_no_error() -> None:
    assert UsageResponse(DiskUsage(0, 0, 0)).data["percent"] == 0.0


def test_an_entry_has_the_documented_fields() -> None:
    """`FileEntry` makes its objects itself, without a call for each field."""
    entry = Entry("a\udcff", "/a\udcff", "symlink", 1, 0o100644, 0.0, target="b")
    assert set(FileEntry(entry).data) == set(FileEntry().fields)


def test_sync_says_that_it_is_done(api: Caller, made: str) -> None:
    body = api.post(f"{LISTING}/sync").json()
    assert body["success"] is True
    assert set(body) == {"success", "message"}


@pytest.mark.parametrize("status", [status for status in Status if status != Status.RUNNING])
def test_only_a_running_workspace_has_files(api: Caller, status: Status) -> None:
    path = f"/workspace/{make_workspace(api.account, status=status).pk}/overlay"
    content = base64.b64encode(b"x").decode()
    for answer in (
        api.get(path),
        api.get(f"{path}/usage"),
        api.post(f"{path}/sync"),
        api.get(f"{path}/files?path=/x"),
        api.post(f"{path}/files", {"path": "/x", "content": content}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "vm_not_running")
        assert answer.json()["details"]["status"] == status


def test_a_guest_that_does_not_answer_is_vm_unavailable(api: Caller, vmhost: FakeHost, made: str) -> None:
    vmhost.driver.pause(made)  # behind our back
    for answer in (
        api.get(LISTING),
        api.get(f"{LISTING}/usage"),
        api.post(f"{LISTING}/sync"),
        ask(api, "GET", f"{FILES}?path=/x")[0],
        write(api, "/x", b"x"),
        ask(api, "POST", f"{FILES}?path=/x", b"x", "application/octet-stream")[0],
    ):
        assert (answer.status_code, answer.json()["code"]) == (503, "VM_UNAVAILABLE")


def test_a_directory_that_is_gone_is_404(api: Caller, disk: Path) -> None:
    run(api, "mkdir here")
    assert api.get(f"{LISTING}?path=/here").status_code == 200
    shutil.rmtree(disk / "here")
    answer = api.get(f"{LISTING}?path=/here")
    assert (answer.status_code, answer.json()["code"]) == (404, "path_not_found")
