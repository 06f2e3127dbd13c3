"""Changing resources and looking at what became of it."""

from __future__ import annotations

from typing import Any

from tests.callers import Caller
from tests.fakehost import FakeHost

# Of the workspaces that `workspace_states.make` makes.
SIZES = {"cpus": 1, "memory_mb": 512, "disk_size_mb": 512}


def resources(api: Caller, made: str) -> dict[str, Any]:
    body = api.get(f"/workspace/{made}/resources").json()
    assert set(body) == {"success", "resources"}
    return body["resources"]


def change(api: Caller, made: str, **sent: Any) -> Any:
    return api.put(f"/workspace/{made}/resources", sent)


def machine(vmhost: FakeHost, made: str) -> tuple[Any, ...]:
    found = vmhost.driver.definition(made)
    return found["cpus"], found["memory_mb"], found["disk_mb"]
