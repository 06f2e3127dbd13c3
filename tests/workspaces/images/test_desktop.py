"""`config.desktop`: images that offer one, its sizes and its program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.images.creating import created, refused, spec
from tests.workspaces.workspace_states import make
from workspaces.models import CatalogEntry
from workspaces.states import Status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("catalog")]

DESKTOP = {
    "installable": True, "prepared": True, "cmd": ["start-desktop"],
    "vm_defaults": {"cpus": 2, "memory_mb": 2048}, "minimum_resources": {"cpus": 0.5, "memory_mb": 768},
}  # fmt: skip


@pytest.fixture
def screen(entry: Callable[..., CatalogEntry]) -> CatalogEntry:
    return entry("screen", preset="screen", capabilities=["shell", "desktop"], desktop=DESKTOP)


ON = {"desktop": {"enabled": True}}


@pytest.mark.parametrize("chosen", [{}, {"preset": "redis"}, {"image": "ubuntu:24.04"}, {"image": "registry.test/x"}])
def test_a_desktop_needs_an_image_that_has_one(api: Caller, vmhost: FakeHost, chosen: dict[str, Any]) -> None:
    assert list(refused(api, "INVALID_CONFIG", **chosen, config=ON)) == ["desktop"]


@pytest.mark.parametrize(
    "without", [{"capabilities": ["shell"]}, {"desktop": None}, {"desktop": {"installable": False}}]
)
def test_an_entry_must_say_so_in_both_places(
    api: Caller, vmhost: FakeHost, entry: Callable[..., CatalogEntry], without: dict[str, Any]
) -> None:
    entry("screen", preset="screen", **{"capabilities": ["desktop"], "desktop": DESKTOP, **without})
    assert list(refused(api, "INVALID_CONFIG", preset="screen", config=ON)) == ["desktop"]


def test_a_desktop_gets_its_sizes_and_its_program(api: Caller, vmhost: FakeHost, screen: CatalogEntry) -> None:
    made = created(api, preset="screen", config=ON)
    assert made["resources"] == {"cpus": 2, "memory_mb": 2048, "disk_size_mb": 512}
    assert made["image_desktop"] == {"installable": True, "prepared": True}
    (program,) = spec(made["id"]).boot.workloads
    assert (program.name, program.cmd, program.restart) == ("desktop", ("start-desktop",), "always")
    assert api.get(f"/workspace/{made['id']}/details").json()["config"]["desktop"] == {"enabled": True}
    off = created(api, preset="screen", config={"desktop": {"enabled": False}})
    assert (off["resources"]["memory_mb"], spec(off["id"]).boot.workloads) == (512, ())


def test_less_than_a_desktop_needs_is_refused(api: Caller, vmhost: FakeHost, screen: CatalogEntry) -> None:
    small = {**ON, "cpus": 0.4, "memory_mb": 767}
    assert set(refused(api, "INVALID_CONFIG", preset="screen", config=small)) == {"cpus", "memory_mb"}
    least = created(api, preset="screen", slug="the-box", config={**ON, "cpus": 0.5, "memory_mb": 768})
    assert least["resources"] == {"cpus": 0.5, "memory_mb": 768, "disk_size_mb": 512}
    answer = api.put("/workspace/the-box/resources", {"memory_mb": 512})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_resources")
    assert list(answer.json()["details"]) == ["memory_mb"]


def test_a_desktop_is_switched_on_and_off_later(api: Caller, vmhost: FakeHost, screen: CatalogEntry) -> None:
    made = created(api, preset="screen", slug="the-box")
    answer = api.put("/workspace/the-box", {"config": ON})
    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_CONFIG")
    assert list(answer.json()["details"]) == ["memory_mb"]
    assert api.put("/workspace/the-box/resources", {"memory_mb": 1024}).status_code == 200
    for config, programs in ((ON, ["desktop"]), ({"desktop": {"enabled": False}}, []), (ON, ["desktop"])):
        assert api.put("/workspace/the-box", {"config": config}).status_code == 200
        assert api.post("/workspace/the-box/restart").status_code == 200
        assert [workload.name for workload in spec(made["id"]).boot.workloads] == programs
    other = make(api, vmhost, Status.RUNNING)
    assert api.put(f"/workspace/{other}", {"config": ON}).json()["details"] == {
        "desktop": ["This image has no desktop."]
    }


def test_a_workload_of_the_owner_takes_the_desktops_place(api: Caller, vmhost: FakeHost, screen: CatalogEntry) -> None:
    own = {"name": "desktop", "cmd": ["mine"]}
    made = created(api, preset="screen", config={**ON, "workloads": [own, {"name": "web", "cmd": ["true"]}]})
    assert {workload.name: workload.cmd for workload in spec(made["id"]).boot.workloads} == {
        "desktop": ("mine",), "web": ("true",),
    }  # fmt: skip


def test_the_catalog_does_not_show_how_a_desktop_is_started(api: Caller, screen: CatalogEntry) -> None:
    (shown,) = api.get("/workspace/images?search=registry.test/screen").json()["images"]
    assert set(shown["desktop"]) == {"installable", "prepared", "vm_defaults", "minimum_resources"}


def test_the_desktop_of_the_seeded_preset_starts(api: Caller, vmhost: FakeHost) -> None:
    made = created(api, preset="workspace-desktop", config={**ON, "env": ["DESKTOP_PASSWORD=x"]})
    assert made["image"] == "localhost/workspace:latest"
    (program,) = spec(made["id"]).boot.workloads
    assert program.cmd[:2] == ("/bin/bash", "-c")
