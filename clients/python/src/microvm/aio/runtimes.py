"""The inside of workspaces: its address and tokens, and what is reached with them."""

from __future__ import annotations

from microvm.aio.routes.runtime_access import AsyncRuntimeAccessRoutes
from microvm.aio.routes.runtime_terminals import AsyncRuntimeTerminalRoutes
from microvm.aio.routes.runtime_watchers import AsyncRuntimeWatcherRoutes
from microvm.aio.runtime_files import AsyncRuntimeFiles
from microvm.aio.tasks import AsyncTasks
from microvm.aio.transport import AsyncTransport


class AsyncOpenRuntime:
    """The inside of one workspace at its runtime's address, with a token of it."""

    def __init__(self, transport: AsyncTransport) -> None:
        self.files = AsyncRuntimeFiles(transport)
        self.tasks = AsyncTasks(transport)
        self.terminals = AsyncRuntimeTerminalRoutes(transport)
        self.watchers = AsyncRuntimeWatcherRoutes(transport)


class AsyncRuntimes(AsyncRuntimeAccessRoutes):
    """The address and the tokens of the inside of a workspace; `open` reaches into it."""

    def open(self, url: str, token: str) -> AsyncOpenRuntime:
        """The runtime at this address; `url` and `token` are those of `enable`, or a later token."""
        return AsyncOpenRuntime(self._transport.with_bearer(token, url.rstrip("/")))
