"""Sandboxes: their creation, and what is reached with a sandbox's own token."""

from __future__ import annotations

from typing import Unpack
from uuid import uuid4

from microvm.commands import ExactResult, exact_sandbox_result
from microvm.retries import Sending
from microvm.sync.group import LONG
from microvm.sync.routes.sandbox_files import SandboxFileRoutes
from microvm.sync.routes.sandbox_git import SandboxGitRoutes
from microvm.sync.routes.sandboxes import SandboxRoutes
from microvm.sync.terminals import Terminals
from microvm.sync.transport import Transport
from microvm.types.sandbox_files import SandboxCommandRequest
from microvm.types.sandboxes import CreateSandboxRequest, NewSandbox


class OpenSandbox:
    """One sandbox at its own address, with its own token."""

    def __init__(self, transport: Transport, url: str, token: str) -> None:
        self.terminals = Terminals(url, token)
        self.files = SandboxFileRoutes(transport)
        self.git = SandboxGitRoutes(transport)

    def run_bytes(self, **body: Unpack[SandboxCommandRequest]) -> ExactResult:
        """Run a command to its end, as `files.run` does, with its outputs byte for byte."""
        body["encoding"] = "base64"
        return exact_sandbox_result(self.files.run(**body))


class Sandboxes(SandboxRoutes):
    """Sandboxes at the level of the account; `open` reaches into one."""

    def create(self, **body: Unpack[CreateSandboxRequest]) -> NewSandbox:
        """Create a sandbox and wait until it is ready. `token` is in this answer only.

        Without `idempotency_key` one is made, so that a repetition after a lost answer makes no second sandbox.
        """
        key = body.pop("idempotency_key", None) or str(uuid4())
        answer = self._transport.call(
            Sending("POST", "/sandbox", body=body, headers={"Idempotency-Key": key}, timeout=LONG)
        )
        made: NewSandbox = answer["sandbox"]
        return made

    def open(self, url: str, token: str) -> OpenSandbox:
        """The sandbox at this address; `url` and `token` are those of its creation, or a later token."""
        return OpenSandbox(self._transport.with_bearer(token, url.rstrip("/")), url, token)
