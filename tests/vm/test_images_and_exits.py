"""Images of every kind, good and bad, and what becomes of a machine whose main process ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vm.client import Api, until
from tests.vm.images import EMPTY, FOREIGN, add_image
from tests.vm.instances import TestInstance
from tests.vm.onhost import machine_pids

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]


def test_an_image_without_any_file_becomes_ready(api: Api) -> None:
    made = api.create(EMPTY)
    assert made["ready"] is True
    listed = api.call("GET", f"/workspace/{made['id']}/overlay", params={"path": "/"})
    assert {"dev", "proc", "sys"} <= {entry["name"] for entry in listed["entries"]}
    refused = api.execute(made["id"], ["/bin/none"], expect=400)
    assert refused["error"] == "command_invalid"
    assert refused["message"]


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
