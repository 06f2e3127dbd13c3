"""Workspaces: creation, power, commands, files and logs. `workspace` is an id or a slug everywhere."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any, cast
from urllib.parse import quote
from uuid import uuid4

from microvm.aio.transport import AsyncTransport, Json
from microvm.errors import WaitTimeout
from microvm.types import ExecResult, Workspace

Command = str | list[str]
LogEntries = list[Json]
POWER_TIMEOUT = 660.0  # seconds: power methods answer when the operation has finished


class AsyncWorkspaces:
    """Every method raises ApiError for an error of the service and ConnectionFailed where no answer came."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, *, idempotency_key: str | None = None, **fields: Any) -> Workspace:
        """Orders a workspace and returns at once; `wait_until_ready` waits. `fields` as the specification has them.

        Without a key one is made, so that a repetition after a lost answer makes no second workspace.
        """
        answer = await self._transport.call(
            "POST",
            "/workspace",
            body={**fields, "wait_ready": False},
            headers={"Idempotency-Key": idempotency_key or str(uuid4())},
        )
        return cast(Workspace, answer["workspace"])

    async def get(self, workspace: str) -> Workspace:
        return cast(Workspace, (await self._transport.call("GET", _path(workspace)))["workspace"])

    async def list(self, *, page_size: int = 100, **filters: str) -> AsyncIterator[Workspace]:
        """All workspaces, page by page; filters are `mode`, `status`, `namespace`, `search`."""
        page = seen = 0
        while True:
            page += 1
            answer = await self._transport.call(
                "GET", "/workspace", query={**filters, "page": page, "limit": page_size}
            )
            for workspace in answer["workspaces"]:
                yield cast(Workspace, workspace)
            seen += len(answer["workspaces"])
            if not answer["workspaces"] or seen >= answer["total"]:
                return

    async def update(self, workspace: str, **fields: Any) -> Workspace:
        return cast(Workspace, (await self._transport.call("PUT", _path(workspace), body=fields))["workspace"])

    async def delete(self, workspace: str) -> None:
        """Removes the workspace and its data; where creation is in flight, the removal follows it."""
        await self._transport.call("DELETE", _path(workspace), timeout=POWER_TIMEOUT)

    async def wait_until_ready(
        self,
        workspace: str,
        *,
        timeout: float = 600,
        interval: float = 1,
        progress: Callable[[Json], None] | None = None,
    ) -> Workspace:
        """Waits up to `timeout` seconds, asking each `interval`; `progress` gets each `provisioning` object.

        Returns when the workspace is ready, or when its creation failed (`provisioning["error"]` says why).
        Raises WaitTimeout; the workspace goes on.
        """
        end = monotonic() + timeout
        while True:
            found = await self.get(workspace)
            provisioning = found.get("provisioning") or {}
            if progress is not None:
                progress(provisioning)
            if found.get("ready") or provisioning.get("state") == "failed":
                return found
            if monotonic() + interval > end:
                raise WaitTimeout(f"Workspace {workspace} is not ready after {timeout:g} seconds.")
            await asyncio.sleep(interval)

    async def start(self, workspace: str) -> Workspace:
        return await self._power(workspace, "start")

    async def stop(self, workspace: str) -> Workspace:
        return await self._power(workspace, "stop")

    async def restart(self, workspace: str) -> Workspace:
        return await self._power(workspace, "restart")

    async def pause(self, workspace: str) -> Workspace:
        return await self._power(workspace, "pause")

    async def resume(self, workspace: str) -> Workspace:
        return await self._power(workspace, "resume")

    async def exec(self, workspace: str, cmd: Command, **fields: Any) -> ExecResult:
        """Runs a command; `fields`: `env`, `working_dir`, `user`, `timeout_seconds`, `stdin`. Never sent twice."""
        answer = await self._transport.call(
            "POST", _path(workspace, "exec"), body={**fields, "cmd": cmd}, timeout=POWER_TIMEOUT
        )
        return cast(ExecResult, answer)

    async def read_file(self, workspace: str, path: str) -> bytes:
        answer = await self._transport.call("GET", _path(workspace, "overlay/files"), query={"path": path})
        return base64.b64decode(answer["content"])

    async def write_file(self, workspace: str, path: str, content: bytes) -> int:
        """Writes a whole file, making its folders; returns its size in bytes."""
        body = {"path": path, "content": base64.b64encode(content).decode()}
        return int((await self._transport.call("POST", _path(workspace, "overlay/files"), body=body))["size"])

    async def logs(self, workspace: str, *, source: str = "boot", tail_lines: int = 100) -> LogEntries:
        query = {"source": source, "tail_lines": tail_lines}
        answer = await self._transport.call("GET", _path(workspace, "logs"), query=query)
        return cast(LogEntries, answer["logs"])

    async def _power(self, workspace: str, move: str) -> Workspace:
        answer = await self._transport.call("POST", _path(workspace, move), timeout=POWER_TIMEOUT)
        return cast(Workspace, answer["workspace"])


def _path(workspace: str, rest: str = "") -> str:
    path = f"/workspace/{quote(workspace, safe='')}"
    return f"{path}/{rest}" if rest else path
