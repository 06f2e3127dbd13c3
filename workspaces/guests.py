"""Reaching a workspace's guest from the API: its address, and guest errors as the caller sees them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterator,
)
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from typing import Any, TypeVar

from django.db import DatabaseError

from common.async_threads import in_pool_thread
from common.connections import release_connection, release_thread
from common.errors import DomainError, NotFound, RateLimited
from vmbackend import errors as backend
from vmbackend.backend import guest_pool
from vmbackend.driver import Workload
from vmbackend.guest.session import GuestAddress, GuestSession
from vmbackend.guest.workloads import list_workloads, put_workload, remove_workload
from workspaces import errors, last_used
from workspaces.host_away import require_reachable
from workspaces.models import Workspace
from workspaces.states import ANY, Status

logger = logging.getLogger(__name__)

T = TypeVar("T")

SSH_SECONDS = 5
# Of these, a program has 5 seconds to end.
WORKLOAD_SECONDS = 20
# It is about to run: a refused request is worth trying again.
SOON_RUNNING = frozenset({Status.CREATING, Status.STARTING, Status.RESTARTING, Status.RESUMING, Status.WAKING})
RETRY_SECONDS = 2
# Seconds to wait after all places for commands of a machine were taken for a minute.
BUSY_SECONDS = 10
# How often a caller that waits for a guest looks whether its machine has ended: SSH notices after a minute.
LOOK_SECONDS = 5.0
# States without a process: the guest does not answer any more. A paused or sleeping guest may answer later.
ENDED = frozenset({Status.STOPPED, Status.FAILED, Status.DESTROYED, Status.DELETING, Status.LOST})


def address_of(workspace: Workspace) -> GuestAddress:
    """Return the address of the guest's control port; this counts as a use. Raise VmNotRunning, VMUnavailable."""
    address = running_address(workspace)
    last_used.record_use(workspace.pk)
    return address


def running_address(workspace: Workspace) -> GuestAddress:
    """Return what `address_of` returns, without a use. Asks neither the database (of a row with its host,
    `host_away.with_host`) nor Redis.
    """
    require_reachable(workspace)
    if workspace.status != Status.RUNNING:
        raise _not_running(workspace.status)
    return _address(workspace)


def _address(workspace: Workspace) -> GuestAddress:
    return GuestAddress(workspace.pk, workspace.ip or "", workspace.control_port, workspace.ssh_host_key)


def ssh_is_open(workspace: Workspace) -> bool:
    """Return whether an SSH session is open. A guest that does not answer counts as having none."""
    if not workspace.ssh_enabled:
        return False
    try:
        return guest_pool().call(_address(workspace), lambda session: session.ssh_connections(), SSH_SECONDS) > 0
    except backend.BackendError:
        return False


def configure_ssh(workspace: Workspace) -> None:
    """Apply the row's SSH access in a running guest. Raise GuestUnreachable."""
    keys = tuple(workspace.ssh_keys)
    with guest_errors():
        guest_pool().call(
            _address(workspace), lambda session: session.set_ssh(workspace.ssh_enabled, keys), SSH_SECONDS * 2
        )


def configure_workload(workspace: Workspace, name: str, wanted: Workload | None) -> None:
    """Configure a workload in a running guest as it is wanted, or remove it if `wanted` is None.

    Raise GuestUnreachable, CommandInvalid.
    """
    with guest_errors():
        guest_pool().call(
            _address(workspace),
            lambda session: put_workload(session, wanted) if wanted else remove_workload(session, name),
            WORKLOAD_SECONDS,
        )


def guest_workload_names(workspace: Workspace) -> list[str]:
    """Return the workloads that a running guest has. Raise GuestUnreachable, CommandInvalid."""
    with guest_errors():
        found = guest_pool().call(_address(workspace), list_workloads, WORKLOAD_SECONDS)
    return [each.name for each in found]


async def call_guest(address: GuestAddress, fn: Callable[[GuestSession], Awaitable[T]], timeout: float) -> T:
    """Call `fn` with the guest's session and return its result, within `timeout` seconds.

    Raise the errors of `call_errors`.

    A call whose machine ends is cancelled within LOOK_SECONDS.
    """
    async with call_errors(address):
        return await _until_machine_ends(address, guest_pool().acall(address, fn, timeout))


async def push_guest(
    address: GuestAddress,
    fn: Callable[[GuestSession, AsyncIterator[bytes]], Awaitable[T]],
    chunks: AsyncIterator[bytes],
    timeout: float | None = None,
) -> T:
    """Do what `call_guest` does, for what `fn` does with the chunks of a client, which may be slow or stall."""
    async with call_errors(address):
        return await _until_machine_ends(address, guest_pool().apush(address, fn, chunks, timeout))


async def take_parts(
    address: GuestAddress,
    read: Callable[[GuestSession], AsyncIterator[T]],
    take: Callable[[T], Awaitable[None]],
    timeout: float,
) -> None:
    """Give each part that `read` yields to `take`, which may wait: the guest waits as long.

    `timeout` is in seconds: for the first part, counted from when the guest has a place for it, and then once more for
    all others. Raise the errors of `call_errors`, and OutputNotRead. The call ends with the machine, within
    LOOK_SECONDS.
    """
    async with call_errors(address):
        await _until_machine_ends(address, _take_parts(guest_pool().astream(address, read, timeout), take, timeout))


async def _take_parts(parts: AsyncGenerator[T, None], take: Callable[[T], Awaitable[None]], timeout: float) -> None:
    try:
        async with aclosing(parts), asyncio.timeout(None) as deadline:
            async for part in parts:
                if deadline.when() is None:
                    deadline.reschedule(asyncio.get_running_loop().time() + timeout)
                await take(part)
    except TimeoutError as exc:
        raise errors.OutputNotRead from exc


async def _until_machine_ends(address: GuestAddress, call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a call, and cancel it if its machine ends. Raise VmNotRunning, NotFound, and what the call
    raises.
    """
    task = asyncio.ensure_future(call)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_SECONDS))[0]:
            if (reason := await in_pool_thread(find_machine_end, address.machine_id)) is not None:
                raise reason
        return task.result()
    finally:
        task.cancel()
        task.add_done_callback(_see_error)


def _see_error(task: asyncio.Task[Any]) -> None:
    """Look at the error of a call that was cancelled: the loop would log it with its traceback."""
    if not task.cancelled():
        task.exception()


class MachineLook:
    """Look at a machine, for a thread that waits for its guest: called as often as the thread likes, it looks every
    LOOK_SECONDS.
    """

    def __init__(self, workspace_id: str) -> None:
        self._workspace_id = workspace_id
        self._next = time.monotonic() + LOOK_SECONDS

    def __call__(self) -> None:
        """Raise VmNotRunning or NotFound if the machine has ended."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + LOOK_SECONDS
        reason = find_machine_end(self._workspace_id)
        release_connection()
        if reason is not None:
            raise reason


async def open_file(
    address: GuestAddress, read: Callable[[GuestSession], AsyncIterator[bytes]], timeout: float
) -> AsyncIterator[bytes]:
    """Return the chunks of a file once the first has been read: errors of opening it can still become a response.

    `timeout`: seconds for one chunk. They end with the machine. Raise the errors of `call_errors`.
    """
    chunks, use = guest_pool().astream(address, read, timeout), last_used.TransferUse(address.machine_id)
    async with call_errors(address):
        first = await next_part(chunks, address.machine_id, use)
    return _joined(first or b"", chunks, address.machine_id, use)


async def _joined(
    first: bytes, rest: AsyncGenerator[bytes, None], machine_id: str, use: last_used.TransferUse
) -> AsyncIterator[bytes]:
    release_thread()  # middleware has started it again, and the response may take hours
    async with aclosing(rest):
        if first:
            yield first
        while (chunk := await next_part(rest, machine_id, use)) is not None:
            await use.arecord_chunk()
            yield chunk


async def next_part(parts: AsyncGenerator[T, None], machine_id: str, use: last_used.TransferUse) -> T | None:
    """Return the next part, None after the last; the machine is in use meanwhile. Raise why it ends (LOOK_SECONDS)."""
    pulling: asyncio.Future[T | None] = asyncio.ensure_future(anext(parts, None))
    try:
        while not (await asyncio.wait({pulling}, timeout=LOOK_SECONDS))[0]:
            await use.arecord_chunk()
            if (reason := await in_pool_thread(find_machine_end, machine_id)) is not None:
                raise reason
    finally:
        if not pulling.done():
            pulling.cancel()
            await asyncio.wait({pulling})
    return pulling.result()


@asynccontextmanager
async def call_errors(address: GuestAddress) -> AsyncIterator[None]:
    """Translate errors as `guest_errors` does, for a call that began while the workspace ran.

    If the guest went away because its workspace was stopped, put to sleep or deleted during the call, raise
    VmNotRunning or NotFound instead of GuestUnreachable: to repeat the call would not help.
    """
    try:
        with guest_errors():
            yield
    except errors.GuestUnreachable as exc:
        reason = await in_pool_thread(_reason_of, address.machine_id)
        if reason is None:
            raise
        raise reason from exc


def _reason_of(workspace_id: str) -> DomainError | None:
    """Return why a guest does not answer, or None if its machine should run."""
    return _reason(workspace_id, ANY - {Status.RUNNING})


def find_machine_end(workspace_id: str) -> DomainError | None:
    """Return the error that says how the machine has ended; None if it has not ended, or if the database does not
    answer.
    """
    try:
        return _reason(workspace_id, ENDED)
    except DatabaseError as exc:
        logger.warning("it is not known whether %s has ended: %s", workspace_id, exc)
        return None


def _reason(workspace_id: str, statuses: Collection[str]) -> DomainError | None:
    status = _status_of(workspace_id)
    if status is None:
        return NotFound()
    return _not_running(status) if status in statuses else None


def directory_archive(
    address: GuestAddress, path: str, timeout: float, while_waiting: Callable[[], None], said: bytearray | None = None
) -> Iterator[bytes]:
    """Yield the tar archive of a directory (`GuestSession.archive`), in a thread; the workspace counts as in use.

    `timeout`: seconds for one chunk. `while_waiting` is called each second without one; what it raises ends the export.
    Close it to stop early. Raise the errors of `call_errors`.
    """
    use = last_used.TransferUse(address.machine_id)
    try:
        with guest_errors(), closing(_archive(address, path, timeout, while_waiting, said)) as chunks:
            for chunk in chunks:
                use.record_chunk()
                yield chunk
    except errors.GuestUnreachable as exc:
        reason = _reason_of(address.machine_id)
        if reason is None:
            raise
        raise reason from exc


def _archive(
    address: GuestAddress, path: str, timeout: float, while_waiting: Callable[[], None], said: bytearray | None
) -> Generator[bytes, None, None]:
    yield from guest_pool().stream(address, lambda session: session.archive(path, said), timeout, while_waiting)


def _status_of(workspace_id: str) -> str | None:
    """Return the status that the row has now, or None if the row is gone."""
    return Workspace.objects.filter(pk=workspace_id).values_list("status", flat=True).first()


def _not_running(status: str) -> errors.VmNotRunning:
    message = f"The workspace is {status}; it must be running."
    headers = {"Retry-After": str(RETRY_SECONDS)} if status in SOON_RUNNING else {}
    return errors.VmNotRunning(message, details={"status": status}, headers=headers)


@contextmanager
def guest_errors() -> Iterator[None]:
    """Translate the backend's errors to those of the API; the one place that does."""
    try:
        yield
    except backend.GuestPathNotFound as exc:
        raise errors.PathNotFound(exc.message) from exc
    except backend.GuestPathExists as exc:
        raise errors.PathExists(exc.message) from exc
    except backend.GuestPathInvalid as exc:
        raise errors.PathInvalid(exc.message) from exc
    except backend.GuestDiskFull as exc:
        raise errors.GuestDiskFull(exc.message) from exc
    except backend.GuestCommandInvalid as exc:
        raise errors.CommandInvalid(exc.message, details=_exit_code(exc)) from exc
    except backend.GuestBusy as exc:
        message = f"{exc.message} Try again later."
        raise RateLimited(message, headers={"Retry-After": str(BUSY_SECONDS)}) from exc
    except backend.GuestKitOutdated as exc:
        raise errors.GuestKitOutdated from exc
    except backend.GuestOutputNotRead as exc:
        raise errors.OutputNotRead(exc.message) from exc
    except backend.BackendError as exc:
        raise errors.GuestUnreachable(exc.message) from exc


def _exit_code(exc: backend.GuestCommandInvalid) -> dict[str, Any] | None:
    return None if exc.exit_code is None else {"exit_code": exc.exit_code}
