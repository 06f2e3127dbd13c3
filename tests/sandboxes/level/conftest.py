"""One running sandbox of the fake driver for the tests of the sandbox level."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.callers import Caller
from tests.fakehost import FakeHost
from tests.sandboxes.level.calls import SandboxCaller
from tests.sandboxes.rows import sandbox_of
from vmbackend.backend import machines_dir
from workspaces.models import Workspace
from workspaces.models.workspace import Kind


@pytest.fixture
def box(api: Caller, vmhost: FakeHost) -> SandboxCaller:
    """A running sandbox, as the holder of its token calls it."""
    made = api.post("/workspace", {"slug": "the-box"}).json()["workspace"]["id"]
    Workspace.objects.filter(pk=made).update(kind=Kind.SANDBOX)
    sandbox, token = sandbox_of(Workspace.objects.get(pk=made))
    return SandboxCaller(sandbox.pk, token, machines_dir() / "directories" / made / "disk")


@pytest.fixture
def disk(box: SandboxCaller) -> Path:
    """Its file system, past the platform."""
    return box.disk
