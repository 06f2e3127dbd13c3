"""`preset` on create and required environment (specification, Workspaces)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.images.creating import PASSWORD, change, created, refused, spec
from workspaces.models import CatalogEntry

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("catalog")]


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
