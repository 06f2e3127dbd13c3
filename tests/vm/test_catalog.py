"""A workspace made from the catalog on a real machine: environment, desktop, logo, and what stays as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.vm.client import Api, until
from tests.vm.images import BUSYBOX, EMPTY
from tests.vm.instances import TestInstance

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("clean")]
SIZES = {"cpus": 1, "memory_mb": 128, "disk_size_mb": 64}
ENTRY = {
    "id": "test-entry", "preset": "test-entry", "label": "Test", "desc": "For a test.", "category": "os",
    "image": BUSYBOX, "os_distribution": "busybox", "color": "#336791", "logo": "workspaces/images/go.svg",
    "env": [
        {"key": "NEEDED", "desc": "Needed.", "required": True},
        {"key": "GREETING", "desc": "A greeting.", "default": "hello"},
    ],
    "vm_defaults": SIZES, "capabilities": ["shell", "desktop"],
    "desktop": {
        "installable": True, "prepared": True, "minimum_resources": SIZES,
        "cmd": ["sh", "-c", 'echo "$GREETING desktop" >/root/screen; sleep 9999'],
    },
}  # fmt: skip
SAVE = """
import json
from workspaces.images.services import catalog_entry_save
from workspaces.models import CatalogEntry
values = json.loads({!r})
entry = CatalogEntry.objects.filter(pk=values["id"]).first() or CatalogEntry()
for name, value in values.items():
    setattr(entry, name, value)
entry.full_clean(validate_unique=False)
catalog_entry_save(entry=entry)
"""


def staff_saves(instance: TestInstance, **changes: Any) -> None:
    code = SAVE.format(json.dumps({**ENTRY, **changes}))
    ran = instance.command("manage", "--", "shell", "-c", code)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture
def entry(instance: TestInstance) -> Iterator[None]:
    staff_saves(instance)
    yield
    code = "from workspaces.models import CatalogEntry; CatalogEntry.objects.filter(pk='test-entry').delete()"
    assert instance.command("manage", "--", "shell", "-c", code).returncode == 0


@pytest.mark.usefixtures("entry")
def test_a_machine_is_made_from_a_preset_and_keeps_it(instance: TestInstance, api: Api) -> None:
    body: dict[str, Any] = {"preset": "test-entry", "mode": "permanent", "config": {"desktop": {"enabled": True}}}
    refused = api.call("POST", "/workspace", 400, json=body)
    assert (refused["code"], refused["details"]) == ("MISSING_REQUIRED_ENV", {"missing": ["NEEDED"]})
    body["config"]["env"] = ["NEEDED=given"]
    made = api.call("POST", "/workspace", 201, json=body)["workspace"]
    assert (made["image"], made["resources"]) == (BUSYBOX, SIZES)
    assert seen(api, made["id"]) == "hello given yes"
    assert screen(api, made["id"]) == "hello desktop"
    api.call("PATCH", f"/workspace/{made['id']}/metadata", json={"metadata": {"kept": None}})
    staff_saves(instance, image=EMPTY, color="#000000", desktop=None, env=[])
    api.call("POST", f"/workspace/{made['id']}/reinstall")
    assert seen(api, made["id"]) == "hello given yes"
    assert screen(api, made["id"]) == "hello desktop"
    after = api.get(made["id"])
    same = ["image", "preset", "resources", "image_logo", "image_color", "image_desktop", "image_capabilities"]
    assert {name: after[name] for name in same} == {name: made[name] for name in same}
    assert api.call("GET", f"/workspace/{made['id']}/metadata")["metadata"] == {"kept": None}


def seen(api: Api, made: str) -> str:
    return api.output(made, "echo $GREETING $NEEDED $FROM_IMAGE")


def screen(api: Api, made: str) -> str:
    """What the desktop's program wrote; it starts beside the machine's readiness."""
    text: str = until(
        lambda: api.output(made, "cat /root/screen 2>/dev/null || true"), 30, "the desktop's program runs"
    )
    return text


def test_the_edge_serves_the_logos(api: Api) -> None:
    images = api.call("GET", "/workspace/images", params={"category": "runtime"})["images"]
    assert images
    for image in images:
        answer = api.http.get(image["logo"], headers={"X-Client-ID": "", "X-Client-Secret": ""})
        assert (answer.status_code, answer.headers["Content-Type"]) == (200, "image/svg+xml")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.text.startswith("<svg ")
