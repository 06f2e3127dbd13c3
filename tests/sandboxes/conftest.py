"""One running sandbox, and calls at its address."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client

from tests.callers import Caller
from tests.fakehost import FakeHost
from workspaces.models import Workspace

LEVEL_URLS = "tests.sandboxes.level_urls"


@dataclass
class Holder:
    """Who has the token of a sandbox."""

    id: str
    token: str

    @property
    def workspace(self) -> Workspace:
        return Workspace.objects.get(pk=self.id.replace("sbx_", "ws_"))

    def call(self, body: Any = None, *, token: str | None = None, id: str = "", **headers: str) -> Any:
        """POST to the route of `tests/sandboxes/level_urls.py`."""
        sent = {"Authorization": f"Bearer {self.token if token is None else token}", **headers}
        data = json.dumps({"text": "hello"} if body is None else body)
        path = f"/s/{id or self.id}/files/create"
        return Client().generic("POST", path, data, content_type="application/json", headers=sent)


@pytest.fixture
def holder(api: Caller, vmhost: FakeHost) -> Holder:
    made = api.post("/sandbox", {"name": "The box"})
    assert made.status_code == 201, made.content
    return Holder(made.json()["sandbox"]["id"], made.json()["sandbox"]["token"])
