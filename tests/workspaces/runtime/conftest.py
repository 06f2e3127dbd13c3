"""One running workspace with its runtime on, and calls with its token."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client

from tests.callers import Caller
from tests.described import DescribedAsyncClient, DescribedClient
from tests.fakehost import FakeHost
from tests.world import assert_error
from vmbackend.backend import machines_dir
from workspaces.models import Workspace


def assert_wrong_field(answer: Any, field: str) -> None:
    """A field is refused by its name."""
    assert_error(answer, 400, "validation_error")
    assert field in {re.split(r"[.[]", name)[0] for name in answer.json()["details"]}  # or an item of it


@dataclass
class Holder:
    """Who has a token of a workspace's runtime."""

    id: str
    token: str

    @property
    def workspace(self) -> Workspace:
        return Workspace.objects.get(pk=self.id)

    @property
    def disk(self) -> Path:
        """The machine's files, past the platform."""
        return machines_dir() / "directories" / self.id / "disk"

    def send(
        self, method: str, path: str, *, token: str | None = None, client: type[Client] = Client, **request: Any
    ) -> Any:
        """A request below `/r`."""
        headers = {"Authorization": f"Bearer {self.token if token is None else token}", **request.pop("headers", {})}
        return client().generic(method, f"/r{path}", headers=headers, **request)

    def get(self, path: str, **request: Any) -> Any:
        return self.send("GET", path, **request)

    def ask(self, route: str, /, **query: Any) -> Any:
        """Values of the query are text, or bytes."""
        return self.send("GET", f"{route}?{urlencode(query)}" if query else route, client=DescribedClient)

    def streamed(self, route: str, /, **query: Any) -> tuple[Any, Iterator[bytes]]:
        """The answer of a GET through ASGI, and the pieces of its body."""
        headers = {"Authorization": f"Bearer {self.token}"}

        async def call() -> Any:
            return await DescribedAsyncClient().get(f"/r{route}?{urlencode(query)}", headers=headers)

        loop = asyncio.new_event_loop()
        answer = loop.run_until_complete(call())

        def pieces() -> Iterator[bytes]:
            source = aiter(answer.streaming_content)
            try:
                while True:
                    yield loop.run_until_complete(anext(source))
            except StopAsyncIteration:
                return
            finally:
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.close()

        return answer, pieces()

    def post(self, route: str, /, body: Any = None, **request: Any) -> Any:
        data = "" if body is None else json.dumps(body)
        request = {"client": DescribedClient, **request}
        return self.send("POST", route, data=data, content_type="application/json", **request)

    def found(self, route: str, /, **query: Any) -> Any:
        """The body of a success; fails the test with anything else."""
        answer = self.ask(route, **query)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def posted(self, route: str, /, body: Any = None) -> Any:
        """The same of a POST."""
        answer = self.post(route, body)
        assert answer.status_code == 200, answer.content
        return answer.json()


def switched_on(api: Caller, workspace_id: str) -> Holder:
    made = api.post(f"/workspace/{workspace_id}/runtime-api-access/enable")
    assert made.status_code == 200, made.content
    return Holder(workspace_id, made.json()["token"])


@pytest.fixture
def holder(api: Caller, vmhost: FakeHost) -> Holder:
    made = api.post("/workspace", {"image": "localhost/tiny:1"})
    assert made.status_code == 201, made.content
    return switched_on(api, made.json()["workspace"]["id"])
