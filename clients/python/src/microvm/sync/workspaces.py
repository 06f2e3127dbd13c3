"""Creation of workspaces, and the wait for it. `workspace` is an id or a slug everywhere."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Unpack
from uuid import uuid4

from microvm.errors import WaitTimeout
from microvm.retries import Sending
from microvm.sync.group import LONG
from microvm.sync.routes.workspaces import WorkspaceRoutes
from microvm.sync.waiting import sleep
from microvm.types.workspaces import CreateRequest, Provisioning, Workspace


class Workspaces(WorkspaceRoutes):
    """Workspaces, their creation and their power."""

    def create(self, **body: Unpack[CreateRequest]) -> Workspace:
        """Order a workspace and return at once; `wait_until_ready` waits.

        Without `idempotency_key` one is made, so that a repetition after a lost answer makes no second workspace.
        """
        key = body.pop("idempotency_key", None) or str(uuid4())
        body.setdefault("wait_ready", False)
        timeout = LONG if body["wait_ready"] else None
        answer = self._transport.call(
            Sending("POST", "/workspace", body=body, headers={"Idempotency-Key": key}, timeout=timeout)
        )
        made: Workspace = answer["workspace"]
        return made

    def wait_until_ready(
        self,
        workspace: str,
        *,
        timeout: float = 600,
        interval: float = 1,
        progress: Callable[[Provisioning], None] | None = None,
    ) -> Workspace:
        """Wait up to `timeout` seconds, asking each `interval`; `progress` gets each `provisioning` object.

        Returns when the workspace is ready, or when its creation failed (`provisioning["error"]` says why).
        Raises WaitTimeout; the workspace goes on.
        """
        end = monotonic() + timeout
        while True:
            found = self.get(workspace)
            if progress is not None:
                progress(found["provisioning"])
            if found["ready"] or found["provisioning"]["state"] == "failed":
                return found
            if monotonic() + interval > end:
                raise WaitTimeout(f"Workspace {workspace} is not ready after {timeout:g} seconds.")
            sleep(interval)
