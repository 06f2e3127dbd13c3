"""The main job on a real machine: create, run commands, write and read files, stop, start, delete."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator

import pytest

from tests.vm.client import Api
from tests.vm.conftest import boot_of
from tests.vm.instances import TestInstance
from tests.vm.onhost import assert_nothing_is_left_over, guests, machine_pids

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("witness")]


@pytest.fixture(scope="module")
def machine(api: Api) -> Iterator[str]:
    """A running workspace that the tests of this file share."""
    made = api.create(env=[{"key": "GREETING", "value": "hello"}], body={"name": "main job", "slug": "main-job"})
    assert made["status"] == "running"
    assert made["ready"] is True
    assert made["provisioning"]["state"] == "ready"
    yield made["id"]
    if not api.is_gone(made["id"]):
        api.delete(made["id"])


def test_a_command_gives_its_output_and_its_exit_code(api: Api, machine: str) -> None:
    answer = api.execute(machine, "echo out; echo err >&2; exit 3")
    assert (answer["stdout"], answer["stderr"], answer["exit_code"]) == ("out\n", "err\n", 3)
    assert answer["timed_out"] is False
    assert answer["truncated"] is False


def test_a_command_reads_its_standard_input(api: Api, machine: str) -> None:
    assert api.output(machine, ["sort"], stdin="b\nä\na\n") == "a\nb\nä"


def test_a_command_sees_its_own_environment_and_working_directory(api: Api, machine: str) -> None:
    printed = api.output(machine, "echo $ONE; pwd", env={"ONE": "a 'b' $c"}, working_dir="/home/dev")
    assert printed == "a 'b' $c\n/home/dev"


def test_the_machine_has_the_environment_of_its_image_and_of_its_configuration(api: Api, machine: str) -> None:
    assert api.output(machine, "echo $FROM_IMAGE $GREETING") == "yes hello"


def test_a_command_runs_as_the_user_it_names(api: Api, machine: str) -> None:
    assert api.output(machine, ["id", "-un"], user="dev") == "dev"
    assert api.execute(machine, ["id"], user="nobody-here", expect=400)["error"] == "command_invalid"


def test_a_timeout_ends_the_whole_process_group(api: Api, machine: str) -> None:
    begun = time.monotonic()
    answer = api.execute(machine, "sleep 4711 & sleep 4711", timeout_seconds=1)
    assert answer["exit_code"] == 124
    assert answer["timed_out"] is True
    assert time.monotonic() - begun < 120  # not until the command ends
    assert "4711" not in api.output(machine, "ps | grep -v grep")


def test_a_file_travels_in_and_out_as_json(api: Api, machine: str) -> None:
    content = bytes(range(256)) * 5
    path = "/root/new/folders/data.bin"
    sent = {"path": path, "content": base64.b64encode(content).decode()}
    written = api.call("POST", f"/workspace/{machine}/overlay/files", json=sent)
    assert (written["path"], written["size"]) == (path, len(content))
    read = api.call("GET", f"/workspace/{machine}/overlay/files", params={"path": path})
    assert base64.b64decode(read["content"]) == content
    assert read["size"] == len(content)


def test_a_file_travels_in_and_out_as_raw_bytes(api: Api, machine: str) -> None:
    content, raw = b"\0raw\xff" * 1000, "application/octet-stream"
    where = {"path": "/root/raw.bin"}
    address = f"/workspace/{machine}/overlay/files"
    api.call("POST", address, params=where, content=content, headers={"Content-Type": raw})
    read = api.http.get(address, params=where, headers={"Accept": raw})
    assert read.content == content
    part = api.http.get(address, params=where, headers={"Accept": raw, "Range": "bytes=1-3"})
    assert (part.status_code, part.content) == (206, b"raw")
    missing = api.call("GET", address, 404, params={"path": "/root/none"})
    assert missing["error"] == "path_not_found"


def test_a_folder_is_listed(api: Api, machine: str) -> None:
    api.output(machine, "mkdir -p /root/list && cd /root/list && echo 12345 > file && mkdir sub && ln -s file link")
    listed = api.call("GET", f"/workspace/{machine}/overlay", params={"path": "/root/list"})
    entries = {entry["name"]: entry for entry in listed["entries"]}
    assert {name: entry["type"] for name, entry in entries.items()} == {
        "file": "file",
        "link": "symlink",
        "sub": "directory",
    }
    assert entries["file"]["size"] == 6
    assert entries["link"]["target"] == "file"
    assert listed["count"] == 3


def test_the_boot_log_shows_the_kernel(api: Api, machine: str) -> None:
    logs = api.call("GET", f"/workspace/{machine}/logs", params={"tail_lines": 1000})["logs"]
    text = "\n".join(entry["line"] for entry in logs)
    assert "kernel Linux" in text, text
    assert "ready" in text.splitlines()[-1], text
    assert {entry["source"] for entry in logs} == {"boot"}


def test_a_stopped_workspace_keeps_its_files(instance: TestInstance, api: Api, machine: str) -> None:
    first_boot = boot_of(api, machine)
    api.output(machine, ["sh", "-c", "echo kept > /root/kept"])
    stopped = api.power(machine, "stop")
    assert stopped["status"] == "stopped"
    assert machine not in machine_pids(instance)
    assert api.execute(machine, ["true"], expect=409)["error"] == "vm_not_running"
    assert api.power(machine, "stop")["status"] == "stopped"
    started = api.power(machine, "start")
    assert (started["status"], started["ready"]) == ("running", True)
    assert api.output(machine, ["cat", "/root/kept"]) == "kept"
    assert boot_of(api, machine) != first_boot


def test_a_deleted_workspace_leaves_nothing(instance: TestInstance, api: Api, machine: str) -> None:
    assert machine in guests(instance)
    api.call("DELETE", f"/workspace/{machine}")
    assert api.call("GET", f"/workspace/{machine}", 404)["error"] == "not_found"
    assert machine not in machine_pids(instance)
    # At once: none of this is left to the reconciliation.
    assert_nothing_is_left_over(instance, api, at_once=True)
