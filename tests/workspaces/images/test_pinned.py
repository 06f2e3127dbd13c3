"""What a workspace keeps of its catalog entry, and what a repeated create does (specification, Versioning)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.images.creating import PASSWORD, change, created, refused, spec
from tests.workspaces.workspace_states import status_of
from workspaces.models import CatalogEntry, Workspace
from workspaces.states import Status

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("catalog")]


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
    assert (row.image_digest, row.catalog_snapshot["revision"], row.catalog_snapshot["image"]) == (
        digest,
        1,
        made["image"],
    )
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
    assert Workspace.objects.get().catalog_snapshot["revision"] == 2


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
    vmhost.images._known.clear()  # evicted from the host after the first use
    for action in ("restart", "reinstall"):
        assert api.post(f"/workspace/the-box/{action}").status_code == 200
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
