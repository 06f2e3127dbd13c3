"""Names and slugs that are made for the caller, and the shapes of bodies against the OpenAPI document's."""

from __future__ import annotations

import re
from typing import Any

import pytest
from rest_framework import serializers

from accounts.models import Account
from common.openapi import MessageResponse
from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.workspaces.rows import make_workspace
from tests.workspaces.workspace_states import no_free_waiting_place
from workspaces import reinstall
from workspaces import serializers as shapes
from workspaces import ssh_views as ssh
from workspaces.commands import serializers as commands
from workspaces.crud import serializers as crud
from workspaces.crud import slugs
from workspaces.files import serializers as files
from workspaces.lifecycle import serializers as lifecycle
from workspaces.logs import serializers as logs
from workspaces.models import Workspace
from workspaces.resources import serializers as resources

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK4MFt2ycVx9YX+gzAd1DaI0QjCpl95MCppG4xK/2tZn me@box"
SLUG = re.compile(r"[a-z0-9-]{3,128}")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "name",
    [
        "my_app v2",
        "ws_abc",
        "quota",
        "Images",
        "a",
        "日本",
        "--",
        "x" * 255,
        "ÄÖ ü",
        "usage",
        "a/b/../c",
        "__",
        "é" * 200,
    ],
)
def test_a_slug_made_from_any_name_is_one_that_a_caller_may_choose(api: Caller, name: str) -> None:
    for _ in range(2):
        slug = slugs.free_slug(api.account, name)
        assert SLUG.fullmatch(slug)
        assert slugs.is_slug(slug)
        row = make_workspace(api.account, name=name, slug=slug)
        assert api.get(f"/workspace/{slug}").json()["workspace"]["id"] == row.pk


@pytest.mark.parametrize("slug", sorted(slugs.RESERVED))
@pytest.mark.django_db
def test_a_word_of_a_route_is_no_slug(api: Caller, slug: str) -> None:
    answer = api.post("/workspace", {"slug": slug})
    assert (answer.status_code, list(answer.json()["details"])) == (400, ["slug"])


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("ghcr.io/team/tool:1.2", "tool"),
        ("ubuntu", "ubuntu"),
        ("localhost:5000/a/b@sha256:" + "0" * 64, "b"),
        ("debian:12-slim", "debian"),
    ],
)
def test_a_name_is_made_from_the_image(image: str, name: str) -> None:
    assert slugs.name_from_image(image) == name


def assert_fits(body: Any, shape: serializers.BaseSerializer, where: str = "body") -> None:
    """The body has the fields of the document, no more and no fewer."""
    if isinstance(shape, serializers.ListSerializer):
        for item in body:
            assert_fits(item, shape.child, f"{where}[]")
        return
    if body is None or not isinstance(shape, serializers.Serializer):
        return
    optional = {name for name, field in shape.fields.items() if not field.required and name != "success"}
    assert set(body) - set(shape.fields) == set(), where
    assert set(shape.fields) - set(body) <= optional, where
    for name, field in shape.fields.items():
        if body.get(name) is None and name in body:
            assert field.allow_null, f"{where}.{name}"
        if name in body and isinstance(field, serializers.BaseSerializer):
            assert_fits(body[name], field, f"{where}.{name}")


@pytest.mark.django_db(transaction=True)
def test_bodies_match_the_document(api: Caller, vmhost: FakeHost) -> None:
    created = api.post("/workspace", {"slug": "the-box", "config": {"ttl": "1h", "cmd": "sleep 9"}})
    assert_fits(created.json(), shapes.WorkspaceResponse())
    for path, shape in (
        ("/workspace", crud.ListResponse()),
        ("/workspace/the-box", shapes.WorkspaceResponse()),
        ("/workspace/the-box/details", crud.DetailsResponse()),
        ("/workspace/quota", crud.QuotaResponse()),
        ("/workspace/the-box/overlay", files.ListingResponse()),
        ("/workspace/the-box/logs", logs.LogsResponse()),
        ("/workspace/the-box/logs/list", logs.LogFilesResponse()),
        ("/workspace/the-box/lifecycle", lifecycle.LifecycleResponse()),
        ("/workspace/the-box/resources", resources.ResourcesResponse()),
        ("/workspace/the-box/ssh", ssh.SshResponse()),
    ):
        assert_fits(api.get(path).json(), shape, path)
    assert_fits(api.post("/workspace/the-box/exec", {"cmd": "true"}).json(), commands.ExecResponse())
    assert_fits(api.post("/workspace/the-box/stop").json(), shapes.WorkspaceResponse())
    assert_fits(api.post("/workspace/the-box/start").json(), shapes.WorkspaceResponse())
    assert_fits(api.put("/workspace/the-box", {"slug": None}).json(), shapes.WorkspaceResponse())
    accepted = api.post("/workspace", {"wait_ready": False, "image": "registry.test/missing"})
    assert_fits(accepted.json(), crud.AcceptedResponse())
    vmhost.settle()
    failed = api.get(f"/workspace/{accepted.json()['id']}")
    assert failed.json()["workspace"]["provisioning"]["error"]
    assert_fits(failed.json(), shapes.WorkspaceResponse())


@pytest.mark.django_db(transaction=True)
def test_bodies_of_power_and_lifecycle_match_the_document(api: Caller, vmhost: FakeHost) -> None:
    api.post("/workspace", {"slug": "the-box", "config": {"ttl": "1h"}})
    entry = {"at": "2026-01-01T00:00:00.000Z", "exit_code": None, "reason": "crashed"}
    Workspace.objects.update(restart_history=[entry])
    for method, path, body, shape in (
        ("POST", "restart", None, shapes.WorkspaceResponse()),
        ("POST", "pause", None, shapes.WorkspaceResponse()),
        ("POST", "resume", None, shapes.WorkspaceResponse()),
        ("POST", "sleep", None, shapes.WorkspaceResponse()),
        ("POST", "resume", None, shapes.WorkspaceResponse()),
        ("POST", "reinstall", None, reinstall.ReinstallResponse()),
        ("POST", "ping", None, lifecycle.PingResponse()),
        ("PUT", "lifecycle/ttl", {"ttl": 60}, lifecycle.LifecycleResponse()),
        ("POST", "lifecycle/permanent", None, lifecycle.LifecycleResponse()),
        ("PUT", "lifecycle/idle", {"suspend_after": "2m"}, lifecycle.IdleResponse()),
        ("POST", "lifecycle/temporary", {"ttl": "1h"}, lifecycle.LifecycleResponse()),
        ("PUT", "resources", {"cpus": 0.5}, resources.ResourcesUpdated()),
        ("GET", "resources", None, resources.ResourcesResponse()),
        ("PATCH", "resources", {"cpus": 1, "apply": True}, resources.ResourcesUpdated()),
        ("PUT", "overlay/resize", {"size_mb": 600}, resources.OverlayResized()),
        ("POST", "ssh/enable", None, ssh.SshChangedResponse()),
        ("POST", "ssh/key", {"public_key": KEY}, ssh.SshChangedResponse()),
        ("POST", "ssh/disable", None, ssh.SshChangedResponse()),
        ("DELETE", "lifecycle", None, MessageResponse()),
        ("GET", "lifecycle", None, lifecycle.LifecycleResponse()),
    ):
        answer = api.send(method, f"/workspace/the-box/{path}", body)
        assert answer.status_code == 200, (path, answer.content)
        assert_fits(answer.json(), shape, path)


@pytest.mark.django_db(transaction=True)
def test_bodies_of_operations_in_progress_match_the_document(api: Caller, vmhost: FakeHost) -> None:
    for path, shape in (
        ("restart", shapes.GoingOnResponse()),
        ("reinstall", reinstall.ReinstallResponse()),
        ("overlay/resize", resources.OverlayResized()),
        ("resources", resources.ResourcesUpdated()),
    ):
        made = api.post("/workspace", {}).json()["workspace"]["id"]
        vmhost.hold_tasks()
        with no_free_waiting_place():
            if path in ("restart", "reinstall"):
                answer = api.post(f"/workspace/{made}/{path}")
            else:
                answer = api.put(f"/workspace/{made}/{path}", {"size_mb": 600, "memory_mb": 256, "apply": True})
        assert answer.status_code == 202
        assert_fits(answer.json(), shape, path)
        vmhost.release_tasks()
        vmhost.settle()


@pytest.mark.django_db(transaction=True)
def test_the_stored_number_of_workspaces_is_their_number(api: Caller, stranger: Caller, vmhost: FakeHost) -> None:
    def stored_count() -> int:
        return Account.objects.get(pk=api.account.pk).workspace_count

    made = [api.post("/workspace", {"config": {"cpus": 0.1}}).json()["workspace"]["id"] for _ in range(3)]
    stranger.post("/workspace", {})
    api.post("/workspace", {"image": ""})
    assert stored_count() == api.get("/workspace").json()["total"] == 3
    api.delete(f"/workspace/{made[0]}")
    api.delete(f"/workspace/{made[0]}")
    assert stored_count() == api.get("/workspace").json()["total"] == 2
    assert stranger.get("/workspace").json()["total"] == 1
