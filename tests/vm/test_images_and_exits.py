"""Images of every kind, good and bad, and what becomes of a machine whose main process ends."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.vm.client import Api, until
from tests.vm.images import EMPTY, FOREIGN, add_image, busybox_root
from tests.vm.instances import TestInstance
from tests.vm.onhost import machine_pids
from vmbackend.images.build import add_directory_image
from vmbackend.images.types import ImageConfig

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]


def test_an_image_without_any_file_becomes_ready(api: Api) -> None:
    made = api.create(EMPTY)
    assert made["ready"] is True
    listed = api.call("GET", f"/workspace/{made['id']}/overlay", params={"path": "/"})
    assert {"dev", "proc", "sys"} <= {entry["name"] for entry in listed["entries"]}
    refused = api.execute(made["id"], ["/bin/none"], expect=400)
    assert refused["error"] == "command_invalid"
    assert refused["message"]


def test_an_image_runs_in_a_folder_that_it_only_names_and_its_losses_stand_in_the_log(
    instance: TestInstance, api: Api, tmp_path: Path
) -> None:
    """Its devices work; what no base disk can have is named."""
    root = tmp_path / "root"
    root.mkdir()
    busybox_root(root)
    (root / "app").symlink_to("/srv/releases/7")
    (root / "jail").mkdir()
    os.mknod(root / "jail/zero", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    os.mknod(root / "jail/gone", 0o666 | stat.S_IFCHR, 0)
    image = f"localhost/tests-named:{instance.id}"
    main = ("/bin/sh", "-c", "pwd -P >here; exec sleep 100000")
    config = ImageConfig(entrypoint=main, working_dir="app/data/", volumes=("/var/lib/app",))
    add_directory_image(instance.settings.images_dir / "oci", image, root, config)
    workspace_id = str(api.create(image, wait_for_init=True)["id"])
    until(lambda: api.output(workspace_id, "cat /srv/releases/7/data/here 2>/dev/null; true"), 20, "the program runs")
    assert api.output(workspace_id, "cat /srv/releases/7/data/here") == "/srv/releases/7/data"
    assert api.output(workspace_id, "stat -c '%a %u %F' /app/data /var/lib/app").splitlines() == ["755 0 directory"] * 2
    assert api.output(workspace_id, "head -c 3 /jail/zero | od -An -tx1; ls /jail").split() == [
        "00",
        "00",
        "00",
        "zero",
    ]
    log = api.call("GET", f"/workspace/{workspace_id}/logs", params={"tail": 1000})
    assert "image: left out: 1 device nodes 0:0, with which an overlay marks what is removed: /jail/gone" in str(log)


def test_the_end_of_the_main_process_stops_the_machine_and_reports_its_exit_code(
    instance: TestInstance, api: Api
) -> None:
    made = api.create(cmd=["sh", "-c", "exit 3"])
    row = until(lambda: (r := api.get(made["id"]))["status"] == "stopped" and r, 30, "the workspace is stopped")
    assert row["info"]["user_requested_stop"] is False
    assert row["info"]["is_running"] is False
    known = f"SELECT last_exit_code, last_exit_reason FROM workspaces_workspace WHERE id = '{made['id']}'"
    assert instance.query(known) == [(3, "exited")]


def test_remove_on_exit_removes_the_workspace(instance: TestInstance, api: Api) -> None:
    workspace_id = api.begin_create(cmd=["sh", "-c", "exit 0"], remove_on_exit=True)
    until(lambda: api.is_gone(workspace_id), 60, "the workspace is gone")
    assert workspace_id not in machine_pids(instance)


@pytest.mark.parametrize(
    ("image", "code", "word"),
    [
        ("localhost/tests-missing:1", "image_not_found", "no image"),
        ("127.0.0.1:9/none/none:1", "image_unreachable", "127.0.0.1:9"),
        (FOREIGN, "image_wrong_platform", "arm64"),
    ],
)
def test_a_create_from_an_image_that_cannot_be_used_says_why(api: Api, image: str, code: str, word: str) -> None:
    workspace_id = api.begin_create(image)
    row = api.reaches(workspace_id, "failed")
    assert row["provisioning"]["state"] == "failed"
    assert row["provisioning"]["error"]["code"] == code
    assert word in row["provisioning"]["error"]["message"]
    assert row["info"]["error"]["code"] == code
    refused = api.create(image, expect=500)
    assert refused["error"] == "CREATE_FAILED"
    assert word in refused["message"]


def test_a_failed_create_is_tried_again_once_the_image_is_there(
    instance: TestInstance, api: Api, tmp_path: Path
) -> None:
    image = f"localhost/tests-late:{instance.id}"
    workspace_id = api.begin_create(image)
    assert api.reaches(workspace_id, "failed")["provisioning"]["attempts"] == 1
    add_image(instance.settings.images_dir / "oci", image, tmp_path)
    api.call("POST", f"/workspace/{workspace_id}/provisioning/retry", 202)
    row = api.reaches(workspace_id, "running")
    assert row["ready"] is True
    assert row["provisioning"]["error"] is None
    assert row["provisioning"]["attempts"] == 2
