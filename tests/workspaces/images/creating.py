"""Workspaces made from catalog entries, and what became of them."""

from __future__ import annotations

from typing import Any

from tests.callers import Caller
from tests.workspaces.test_shapes import assert_fits
from vmbackend.backend import machines_dir
from vmbackend.driver import MachineSpec
from vmbackend.fake.store import FakeStore
from workspaces.images.services import catalog_entry_save
from workspaces.models import CatalogEntry, Workspace
from workspaces.serializers import WorkspaceResponse

PASSWORD = {"key": "POSTGRES_PASSWORD", "value": "secret-1"}


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
