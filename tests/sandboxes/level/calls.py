"""Calls of the sandbox level, as the streams process serves them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asgiref.sync import async_to_sync

from tests.described import DescribedAsyncClient


@dataclass(frozen=True)
class SandboxCaller:
    """The holder of a sandbox's token. `disk`: the machine's files, past the platform."""

    sandbox_id: str
    token: str
    disk: Path

    def ask(self, route: str, body: Any = None, **headers: str) -> Any:
        """Through ASGI. Returns the response and its whole body."""
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()
        sent = {"Authorization": f"Bearer {self.token}", **headers}

        async def call() -> Any:
            path = f"/s/{self.sandbox_id}/{route}"
            request: Awaitable[Any] = DescribedAsyncClient().post(
                path, data, content_type="application/json", headers=sent
            )
            response = await asyncio.wait_for(request, 60)
            if not response.streaming:
                return response, response.content
            return response, b"".join([chunk async for chunk in response.streaming_content])

        return async_to_sync(call)()

    def post(self, route: str, body: Any = None) -> Any:
        """The body of a success; fails the test with anything else."""
        response, content = self.ask(route, body)
        assert response.status_code == 200, content
        found = json.loads(content)
        assert found["success"] is True
        return found

    def refused(self, route: str, body: Any = None) -> tuple[int, str, Any]:
        """Status, code and details of a refusal."""
        response, content = self.ask(route, body)
        found = json.loads(content)
        assert found["success"] is False, found
        return response.status_code, found["code"], found.get("details")
