"""Sandboxes: their creation, and what is reached with a sandbox's own token."""

from __future__ import annotations

from typing import Unpack
from uuid import uuid4

from microvm.aio.group import LONG
from microvm.aio.routes.sandbox_files import AsyncSandboxFileRoutes
from microvm.aio.routes.sandbox_git import AsyncSandboxGitRoutes
from microvm.aio.routes.sandboxes import AsyncSandboxRoutes
from microvm.aio.terminals import AsyncTerminals
from microvm.aio.transport import AsyncTransport
from microvm.commands import ExactResult, exact_sandbox_result
from microvm.retries import Sending
from microvm.types.sandbox_files import SandboxCommandRequest
from microvm.types.sandboxes import CreateSandboxRequest, NewSandbox


class AsyncOpenSandbox:
    """One sandbox at its own address, with its own token."""

    def __init__(self, transport: AsyncTransport, url: str, token: str) -> None:
        self.terminals = AsyncTerminals(url, token)
        self.files = AsyncSandboxFileRoutes(transport)
        self.git = AsyncSandboxGitRoutes(transport)

    async def run_bytes(self, **body: Unpack[SandboxCommandRequest]) -> ExactResult:
        """Run a command to its end, as `files.run` does, with its outputs byte for byte."""
        body["encoding"] = "base64"
        return exact_sandbox_result(await self.files.run(**body))


class AsyncSandboxes(AsyncSandboxRoutes):
    """Sandboxes at the level of the account; `open` reaches into one."""

    async def create(self, **body: Unpack[CreateSandboxRequest]) -> NewSandbox:
        """Create a sandbox and wait until it is ready. `token` is in this answer only.

        Without `idempotency_key` one is made, so that a repetition after a lost answer makes no second sandbox.
        """
        key = body.pop("idempotency_key", None) or str(uuid4())
        answer = await self._transport.call(
            Sending("POST", "/sandbox", body=body, headers={"Idempotency-Key": key}, timeout=LONG)
        )
        made: NewSandbox = answer["sandbox"]
        return made

    def open(self, url: str, token: str) -> AsyncOpenSandbox:
        """The sandbox at this address; `url` and `token` are those of its creation, or a later token."""
        return AsyncOpenSandbox(self._transport.with_bearer(token, url.rstrip("/")), url, token)
