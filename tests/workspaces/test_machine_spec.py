"""What a machine learns of its image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vmbackend.images.image_config import parse_config
from vmbackend.images.types import Image
from workspaces.host.machine_spec import machine_spec
from workspaces.models import Workspace

POSTGRES = {
    "Entrypoint": ["docker-entrypoint.sh"],
    "Cmd": ["postgres"],
    "Env": ["PGDATA=/var/lib/postgresql/data"],
    "User": "postgres",
    "WorkingDir": "/srv",
    "StopSignal": "SIGINT",
}


@pytest.fixture
def image() -> Image:
    return Image("sha256:1", Path("/image"), 1, parse_config({"config": POSTGRES}))


def workspace(**fields: Any) -> Workspace:
    sizes = {"applied_cpu_millis": 1000, "applied_memory_mb": 512, "applied_disk_size_mb": 512}
    return Workspace(id="ws_1", slug="one", **sizes, **fields)


def test_the_images_configuration_and_the_settings_grace_reach_the_machine(image: Image, settings: Any) -> None:
    settings.ENV = settings.ENV.model_copy(update={"stop_grace_seconds": 33})
    boot = machine_spec(workspace(env={"MINE": "1"}), image).boot
    assert boot.entrypoint == ("docker-entrypoint.sh", "postgres")
    assert (boot.user, boot.working_dir, boot.stop_signal, boot.stop_grace) == ("postgres", "/srv", "SIGINT", 33)
    assert (boot.env["PGDATA"], boot.env["MINE"]) == ("/var/lib/postgresql/data", "1")


def test_an_image_that_says_nothing_is_roots_and_has_no_folder(image: Image) -> None:
    boot = machine_spec(workspace(), replace(image, config=parse_config({}))).boot
    assert (boot.user, boot.working_dir, boot.stop_signal) == ("root", "", "")
