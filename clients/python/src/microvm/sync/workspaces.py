"""Creation of workspaces, and the wait for it. `workspace` is an id or a slug everywhere."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from time import monotonic
from typing import Unpack
from uuid import uuid4

import httpx

from microvm.addresses import quoted
from microvm.commands import CommandEvent, CommandEvents, CommandExit, ExactResult, exact_body, exact_result
from microvm.errors import ConnectionFailed, WaitTimeout
from microvm.events import EventParser, StreamPlace
from microvm.retries import Sending
from microvm.sync.command_input import CommandInput
from microvm.sync.group import LONG
from microvm.sync.routes.workspaces import WorkspaceRoutes
from microvm.sync.waiting import sleep
from microvm.types.workspaces import CreateRequest, ExecRequest, Provisioning, Workspace

# Seconds without a byte: a machine may take 60 until it has a place for a command, and then there are heartbeats.
SILENCE = 120.0


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

    def exec_bytes(self, workspace: str, *, stdin_bytes: bytes = b"", **body: Unpack[ExecRequest]) -> ExactResult:
        """Run a command to its end, as `exec` does, with bytes for its input and its outputs, each as it is."""
        path = f"/workspace/{quoted(workspace)}/exec"
        answer = self._transport.call(Sending("POST", path, body=exact_body(body, stdin_bytes), timeout=LONG))
        return exact_result(answer)

    def exec_stream(
        self, workspace: str, *, stdin_parts: Iterable[bytes] | None = None, **body: Unpack[ExecRequest]
    ) -> Generator[CommandEvent, None, None]:
        """Run a command, with its output as it comes: `CommandOutput` each time, and `CommandExit` at last.

        Its input is `stdin`, and then `stdin_parts` while it runs, without a limit; what they raise ends the command.

        The command waits while none is taken, and ends with its stream: close it to stop early (`contextlib.closing`,
        of coroutines `contextlib.aclosing`). It is not sent again once it may run. Raises ApiError, also where
        something fails while it runs, and ConnectionFailed where the connection is lost, which ends the command.
        """
        path, headers = f"/workspace/{quoted(workspace)}/exec", {"Accept": "text/event-stream"}
        stdin = CommandInput(self._transport, path, stdin_parts)
        whole = {**exact_body(body), **stdin.body, "stream": True}
        sending = Sending("POST", path, body=whole, headers=headers, timeout=SILENCE)
        parser, events = EventParser(StreamPlace()), CommandEvents()
        try:
            with stdin, self._transport.opened(sending) as response:
                if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
                    raise ConnectionFailed("The service has no streams of commands: it is older than this client.")
                for part in response.iter_bytes():
                    stdin.require_sent()
                    for found in (each for event in parser.events_in(part) for each in events.read(event)):
                        yield found
                        if isinstance(found, CommandExit):
                            return
        except httpx.TransportError as error:
            raise ConnectionFailed(f"The connection was lost while the command ran: {error}") from error
        raise ConnectionFailed("The service ended the connection while the command ran.")
