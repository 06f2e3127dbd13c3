"""Guests for the holder of a token: of a running machine, or one that sleeps and is woken for the request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from common.async_threads import in_pool_thread, in_request_thread, run_to_end
from common.errors import InvalidState, VMUnavailable
from common.watched_bodies import BodyGrant, while_granted
from vmbackend.guest.deadlines import PLACE_SECONDS
from vmbackend.guest.session import GuestAddress, GuestSession
from workspaces import last_used
from workspaces.commands.capacity import command_place
from workspaces.data_plane.streams import stream_guest
from workspaces.edge_auth.wake_coalescer import wake_coalescer
from workspaces.errors import OperationInProgress, VmNotRunning
from workspaces.guests import call_guest, open_file, running_address
from workspaces.host_away import require_reachable
from workspaces.models import Workspace
from workspaces.states import Status

T = TypeVar("T")

ASLEEP = frozenset({Status.SLEEPING, Status.WAKING, Status.SUSPENDING})
RETRY_SECONDS = 2


@dataclass(frozen=True, slots=True)
class OpenGuest:
    """The guest of a running machine, for one request that a token authorized."""

    address: GuestAddress
    account_id: str
    disk_bytes: int
    grant: BodyGrant

    async def record_use(self) -> None:
        """Count a use of the machine, for what this object does not do itself."""
        await in_pool_thread(last_used.record_use, self.address.machine_id)

    async def call(self, fn: Callable[[GuestSession], Awaitable[T]], timeout: float) -> T:
        """Return what `fn` returns for the guest's session, within `timeout` seconds; the call ends if its client goes
        away.

        Counts as a use. `fn` runs on the loop of the guest pool, in another thread. Raise the errors of
        `workspaces.guests.call_errors`.
        """
        await self.record_use()
        return await call_guest(self.address, fn, timeout)

    async def run(self, fn: Callable[[GuestSession], Awaitable[T]], timeout: float) -> T:
        """Do what `call` does, for commands: the call goes on if its client goes away, keeps the machine awake, and
        counts as one of the account's commands. A token that ends in the meantime gets nothing of its output. Raises
        RateLimited and Unauthorized beside the errors of `call`.
        """
        async with while_granted(self.grant):
            return await run_to_end(self._run(fn, timeout))

    async def wait(self, fn: Callable[[GuestSession], Awaitable[T]], timeout: float) -> T:
        """Do what `run` does, for what goes on in the guest: the call ends if its client goes away."""
        async with while_granted(self.grant):
            return await self._run(fn, timeout)

    def stream(self, read: Callable[[GuestSession], AsyncIterator[T]]) -> AsyncGenerator[T, None]:
        """Yield what `read` yields, for any length of time; it ends with the machine, and counts as a use meanwhile.

        Use it within `contextlib.aclosing`. Raises the errors of `call`.
        """
        return stream_guest(self.address, read)

    async def _run(self, fn: Callable[[GuestSession], Awaitable[T]], timeout: float) -> T:
        with command_place(self.account_id):
            async with last_used.in_use_async(self.address.machine_id, timeout + PLACE_SECONDS):
                return await call_guest(self.address, fn, timeout)

    async def open_file(
        self, read: Callable[[GuestSession], AsyncIterator[bytes]], timeout: float
    ) -> AsyncIterator[bytes]:
        """Yield the chunks of a file, once the first has been read; `timeout` in seconds for one chunk. Counts as a
        use.
        """
        await self.record_use()
        return await open_file(self.address, read, timeout)


async def open_guest(workspace: Workspace, grant: BodyGrant) -> OpenGuest:
    """Return the guest of a running machine; one that sleeps is woken first, as for a request to a public port.

    `workspace` has the columns of `data_plane.holders.COLUMNS`. Raise VmNotRunning (it is stopped, paused, being made,
    ...), VMUnavailable (it did not wake), and what refuses a wake: NamespaceSuspended, QuotaExceeded,
    RunningPoolReached.
    """
    require_reachable(workspace)
    if workspace.status in ASLEEP:
        await wake_machine(workspace.pk)
        await in_request_thread(workspace.refresh_from_db, fields=["status", "ip", "control_port", "ssh_host_key"])
    disk_bytes = workspace.applied_disk_size_mb << 20
    return OpenGuest(running_address(workspace), workspace.account_id, disk_bytes, grant)


async def wake_machine(workspace_id: str) -> None:
    """Wake a sleeping machine; concurrent callers share one wake. Raise what `open_guest` raises."""
    retry = {"Retry-After": str(RETRY_SECONDS)}
    try:
        if not await wake_coalescer().ensure_running(workspace_id):
            raise VMUnavailable("The machine did not wake in time; try again.", headers=retry)
    except (InvalidState, OperationInProgress) as exc:
        raise VmNotRunning(exc.message, details=exc.details, headers=retry) from exc
