"""`preset` on create, required environment, and what a workspace keeps of its entry (specification, Workspaces)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.moves import make, status_of
from tests.workspaces.test_shapes import assert_fits
from vmbackend.backend import machines_dir
from vmbackend.driver import MachineSpec
from vmbackend.fake_store import FakeStore
from workspaces.api.schemas import WorkspaceResponse
from workspaces.images.services import catalog_entry_save
from workspaces.models import CatalogEntry, Workspace
from workspaces.states import Status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("catalog")]
PASSWORD = {"key": "POSTGRES_PASSWORD", "value": "secret-1"}
DESKTOP = {
    "installable": True, "prepared": True, "cmd": ["start-desktop"],
    "vm_defaults": {"cpus": 2, "memory_mb": 2048}, "minimum_resources": {"cpus": 0.5, "memory_mb": 768},
}  # fmt: skip


def created(api: Caller, **body: Any) -> dict[str, Any]:
    answer = api.post("/workspace", body)
    assert answer.status_code == 201, answer.content
    assert_fits(answer.json(), WorkspaceResponse())
    workspace: dict[str, Any] = answer.json()["workspace"]
    return workspace


def refused(api: Caller, code: str, **body: Any) -> dict[str, Any]:
    answer = api.post("/workspace", body)
    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert not Workspace.objects.exists()
    details: dict[str, Any] = answer.json()["details"]
    return details


def spec(made: str) -> MachineSpec:
    domain = FakeStore(machines_dir()).domain(made)
    assert domain is not None
    return domain.spec


def change(name: str, **fields: Any) -> CatalogEntry:
    """An edit by staff."""
    entry = CatalogEntry.objects.get(pk=name)
    for field, value in fields.items():
        setattr(entry, field, value)
    entry.full_clean()
    return catalog_entry_save(entry=entry)


# By preset


def test_a_preset_brings_its_image_sizes_environment_and_looks(api: Caller, vmhost: FakeHost) -> None:
    made = created(api, preset="postgres", config={"env": [PASSWORD]})
    assert (made["preset"], made["image"], made["name"]) == ("postgres", "docker.io/library/postgres:17", "postgres")
    assert made["resources"] == {"cpus": 1, "memory_mb": 1024, "disk_size_mb": 8192}
    assert made["image_logo"].endswith("/static/workspaces/images/postgres.svg")
    assert (made["image_color"], made["image_desktop"]) == ("#336791", None)
    assert "service" in made["image_capabilities"]
    environment = spec(made["id"]).boot.env
    assert environment["POSTGRES_PASSWORD"] == "secret-1"
    assert environment["POSTGRES_USER"] == "postgres"  # the preset's default
    assert "POSTGRES_DB" not in environment


def test_what_the_request_names_wins_over_the_preset(api: Caller, vmhost: FakeHost) -> None:
    config = {"env": [PASSWORD, "POSTGRES_USER=me"], "memory_mb": 256, "cpus": 0.5}
    made = created(api, preset="postgres", config=config, disk_size_mb=512)
    assert made["resources"] == {"cpus": 0.5, "memory_mb": 256, "disk_size_mb": 512}
    assert spec(made["id"]).boot.env["POSTGRES_USER"] == "me"


def test_without_a_preset_the_sizes_are_the_documented_ones(api: Caller, vmhost: FakeHost) -> None:
    made = created(api, image="postgres:17", config={"env": [PASSWORD]})
    assert made["resources"] == {"cpus": 1, "memory_mb": 512, "disk_size_mb": 512}
    assert (made["preset"], made["image"]) == (None, "postgres:17")
    assert made["image_color"] == "#336791"
    assert "POSTGRES_USER" not in spec(made["id"]).boot.env


def test_an_unknown_or_hidden_preset_is_refused(api: Caller, vmhost: FakeHost) -> None:
    CatalogEntry.objects.filter(pk="redis").update(is_shown=False)
    for preset in ("never", "redis", "x" * 120, "Postgres"):
        assert list(refused(api, "validation_error", preset=preset)) == ["preset"]
    for wrong in (5, "", ["postgres"], "x" * 121):
        assert list(refused(api, "validation_error", preset=wrong)) == ["preset"]


@pytest.mark.parametrize(
    "image", ["docker.io/library/postgres:17", "postgres:17", "library/postgres:17", "base.test/pg:1"]
)
def test_an_image_beside_the_preset_may_be_its_base(api: Caller, vmhost: FakeHost, image: str) -> None:
    change("postgres", base_image="base.test/pg:1")
    made = created(api, preset="postgres", image=image, config={"env": [PASSWORD]})
    assert made["image"] == "docker.io/library/postgres:17"


@pytest.mark.parametrize("image", ["postgres", "postgres:16", "mysql:8.4", f"postgres:17@sha256:{'0' * 64}"])
def test_another_image_beside_the_preset_is_refused(api: Caller, vmhost: FakeHost, image: str) -> None:
    details = refused(api, "validation_error", preset="postgres", image=image, config={"env": [PASSWORD]})
    assert list(details) == ["image"]
    assert "docker.io/library/postgres:17" in details["image"][0]


def test_a_null_image_is_left_out(api: Caller, vmhost: FakeHost) -> None:
    assert created(api, preset="redis", image=None)["image"] == "docker.io/library/redis:7"
    assert created(api, preset=None)["image"] == "localhost/workspace:latest"


def test_sizes_of_a_preset_above_the_plan_are_refused(new_account: Callable[..., Caller], vmhost: FakeHost) -> None:
    tiny = new_account(plan="tiny")
    answer = tiny.post("/workspace", {"preset": "java"})
    assert (answer.status_code, answer.json()["code"]) == (403, "RESOURCE_NOT_ALLOWED")
    small = {"cpus": 0.5, "memory_mb": 512, "disk_size_mb": 512}
    assert tiny.post("/workspace", {"preset": "java", "config": small}).status_code == 201


def test_images_for_macos_have_no_host(api: Caller, vmhost: FakeHost, entry: Callable[..., CatalogEntry]) -> None:
    entry("mac", os_family="macos", preset="mac", image="registry.test/mac:15")
    assert list(refused(api, "INVALID_CONFIG", preset="mac")) == ["image"]
    assert list(refused(api, "INVALID_CONFIG", image="registry.test/mac:15")) == ["image"]


# Required environment


@pytest.mark.parametrize(
    "chosen",
    [{"preset": "mongo"}, {"image": "mongo:7"}, {"image": f"docker.io/library/mongo:7@sha256:{'0' * 64}"}],
)
def test_a_required_variable_that_is_absent_is_named(api: Caller, vmhost: FakeHost, chosen: dict[str, Any]) -> None:
    user, password = "MONGO_INITDB_ROOT_USERNAME", "MONGO_INITDB_ROOT_PASSWORD"
    assert refused(api, "MISSING_REQUIRED_ENV", **chosen) == {"missing": [user, password]}
    some = {"env": [f"{user}=me", "OTHER=1"]}
    assert refused(api, "MISSING_REQUIRED_ENV", **chosen, config=some) == {"missing": [password]}
    assert created(api, **chosen, config={"env": [f"{user}=me", {"key": password, "value": "x"}]})["ready"] is True


def test_images_outside_of_the_catalog_require_nothing(api: Caller, vmhost: FakeHost) -> None:
    for image in ("mongo:6", "registry.test/mongo:7", "localhost/tiny:1"):
        made = created(api, image=image)
        assert (made["image_logo"], made["image_color"], made["image_capabilities"]) == (None, None, [])


def test_an_entry_without_a_preset_describes_an_image_before_one_with_it(
    api: Caller, vmhost: FakeHost, entry: Callable[..., CatalogEntry]
) -> None:
    entry(
        "a",
        image="registry.test/same:1",
        preset="a",
        color="#000001",
        env=[{"key": "A", "desc": "x", "required": True}],
    )
    entry("b", image="registry.test/same:1", color="#000002", position=900)
    assert created(api, image="registry.test/same:1")["image_color"] == "#000002"
    assert refused_after(api, preset="a") == {"missing": ["A"]}


def refused_after(api: Caller, **body: Any) -> dict[str, Any]:
    answer = api.post("/workspace", body)
    assert (answer.status_code, answer.json()["code"]) == (400, "MISSING_REQUIRED_ENV")
    details: dict[str, Any] = answer.json()["details"]
    return details


# Pinned at creation


def test_a_later_edit_changes_nothing_of_an_existing_workspace(api: Caller, vmhost: FakeHost) -> None:
    made = created(api, preset="postgres", slug="the-box", config={"env": [PASSWORD]})
    before, digest = spec(made["id"]), Workspace.objects.get().image_digest
    change(
        "postgres", image="docker.io/library/postgres:99", color="#000000", logo="", capabilities=["other"],
        vm_defaults={"memory_mb": 4096}, env=[{"key": "NEW", "desc": "x", "required": True, "default": None}],
    )  # fmt: skip
    assert api.post("/workspace/the-box/restart").status_code == 200
    assert api.post("/workspace/the-box/reinstall").status_code == 200
    after = api.get("/workspace/the-box").json()["workspace"]
    same = ["image", "preset", "resources", "image_logo", "image_color", "image_capabilities", "image_desktop"]
    assert {name: after[name] for name in same} == {name: made[name] for name in same}
    assert (spec(made["id"]).image, spec(made["id"]).boot.env) == (before.image, before.boot.env)
    row = Workspace.objects.get()
    assert (row.image_digest, row.image_pin["revision"], row.image_pin["image"]) == (digest, 1, made["image"])
    assert digest.startswith("sha256:")


def test_a_deleted_entry_changes_nothing_either(api: Caller, vmhost: FakeHost) -> None:
    made = created(api, preset="postgres", slug="the-box", config={"env": [PASSWORD]})
    CatalogEntry.objects.all().delete()
    assert api.post("/workspace/the-box/restart").status_code == 200
    after = api.get("/workspace/the-box").json()["workspace"]
    assert (after["image_logo"], after["image_color"]) == (made["image_logo"], made["image_color"])
    assert spec(made["id"]).boot.env["POSTGRES_USER"] == "postgres"


def test_new_workspaces_get_the_edited_entry(api: Caller, vmhost: FakeHost) -> None:
    change("redis", vm_defaults={"memory_mb": 384}, image="docker.io/library/redis:8")
    made = created(api, preset="redis")
    assert (made["resources"]["memory_mb"], made["image"]) == (384, "docker.io/library/redis:8")
    assert made["resources"]["disk_size_mb"] == 512  # the documented default, where the preset has none
    assert Workspace.objects.get().image_pin["revision"] == 2


def test_the_digest_is_pinned_by_the_first_pull_and_used_from_then_on(
    api: Caller, vmhost: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    ensure = vmhost.images.ensure

    def recorded(reference: str, **arguments: Any) -> Any:
        asked.append(reference)
        return ensure(reference, **arguments)

    monkeypatch.setattr(vmhost.images, "ensure", recorded)
    created(api, preset="redis", slug="the-box")
    digest = Workspace.objects.get().image_digest
    assert asked == ["docker.io/library/redis:7"]
    vmhost.images._known.clear()  # evicted from the host meanwhile
    for move in ("restart", "reinstall"):
        assert api.post(f"/workspace/the-box/{move}").status_code == 200
    assert asked[1:] == [f"docker.io/library/redis@{digest}"]


def test_a_failed_creation_is_tried_again_with_what_it_chose(api: Caller, vmhost: FakeHost) -> None:
    change("redis", image="registry.test/missing:1")
    made = api.post("/workspace", {"preset": "redis"}).json()["details"]["id"]
    change("redis", image="registry.test/other:1")
    vmhost.images._fail = lambda name: None  # type: ignore[method-assign]
    assert api.post(f"/workspace/{made}/provisioning/retry").status_code == 202
    vmhost.settle()
    assert status_of(made) == Status.RUNNING
    assert Workspace.objects.get().image == "registry.test/missing:1"


# Idempotency


def test_a_repeated_create_answers_the_same_whatever_the_catalog_says_by_now(api: Caller, vmhost: FakeHost) -> None:
    body = {"preset": "redis", "idempotency_key": "k"}
    first = created(api, **body)
    change("redis", env=[{"key": "NEW", "desc": "x", "required": True}])
    for edit in (lambda: None, lambda: CatalogEntry.objects.filter(pk="redis").delete()):
        edit()
        again = api.post("/workspace", body)
        assert (again.status_code, again["Idempotent-Replay"]) == (200, "true")
        assert again.json()["workspace"]["id"] == first["id"]
    other = api.post("/workspace", {**body, "preset": "valkey"})
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert Workspace.objects.count() == 1


def test_a_refused_create_does_not_use_its_key_up(api: Caller, vmhost: FakeHost) -> None:
    assert refused(api, "MISSING_REQUIRED_ENV", preset="postgres", idempotency_key="k")
    made = created(api, preset="postgres", idempotency_key="k", config={"env": [PASSWORD]})
    assert made["preset"] == "postgres"


# The desktop


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
