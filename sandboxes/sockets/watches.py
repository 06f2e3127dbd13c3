"""The watches of one socket: each follows a folder of the guest, and ends with the socket or its folder."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from sandboxes.sockets.messages import MessageInvalid, RequestId, StopWatch, Watch
from vmbackend.errors import BackendError, GuestUnreachable
from vmbackend.guest.hold import HeldWatch, TerminalLimit, WatchEvent, WatchKind
from workspaces.data_plane.fields import path_fields
from workspaces.data_plane.sockets.machine import MachineTerminals

# Messages that were not sent yet, of all watches of a socket: then events wait in the guest, which reports its losses.
MAX_QUEUED = 128
RETRY_SECONDS = 0.5
CLOSE_SECONDS = 5.0
# Watches of a lost connection count until the guest notices: at the first attempt beyond the limit, or, with an older
# kit, by its keepalive of 30 s at the latest after a sleep.
LIMIT_SECONDS = 40.0
_TYPES = {WatchKind.ADDED: "watch_add", WatchKind.CHANGED: "watch_change", WatchKind.REMOVED: "watch_unlink"}


T = TypeVar("T")


class SocketWatches:
    """The watches of a socket. Belongs to one event loop. `wake` is called when there is something to be sent."""

    def __init__(self, sandbox: MachineTerminals, wake: Callable[[], None]) -> None:
        self._sandbox = sandbox
        self._wake = wake
        self._running: dict[int, asyncio.Task[None]] = {}
        self._last = 0
        self._queue: deque[dict[str, Any]] = deque()
        self._sent = asyncio.Event()

    def start(self, given: Watch, request_id: RequestId) -> None:
        """Begin a watch; `watch_started` or `watch_error` follows. Raise MessageInvalid at the sandbox's limit."""
        try:
            self._sandbox.reserve_watch()
        except TerminalLimit as error:
            raise MessageInvalid("watch_limit", error.message, about="watch_error") from error
        self._last += 1
        id, task = self._last, asyncio.ensure_future(self._run(self._last, given, request_id))
        self._running[id] = task
        task.add_done_callback(lambda _: self._forget(id))  # also of one that was cancelled before it ran

    async def stop(self, given: StopWatch, request_id: RequestId) -> None:
        """End one watch, or all of this socket. Raise MessageInvalid if there is no such watch."""
        if given.id is not None and given.id not in self._running:
            raise MessageInvalid("watch_not_found", "There is no such watch.", about="watch_error")
        ids = list(self._running) if given.id is None else [given.id]
        await self._end(ids)
        self._queue = deque(each for each in self._queue if each.get("watchId") not in ids)
        self._post("watch_stopped", request_id, watchIds=ids)

    @property
    def is_full(self) -> bool:
        """Return whether the client has asked for more than it reads."""
        return len(self._queue) > 2 * MAX_QUEUED

    def next_message(self) -> dict[str, Any] | None:
        """Return the next message to be sent; None if there is none."""
        if not self._queue:
            return None
        self._sent.set()
        return self._queue.popleft()

    async def leave(self) -> None:
        """End all of them."""
        await self._end(list(self._running))

    async def _end(self, ids: list[int]) -> None:
        tasks = [self._running[id] for id in ids]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _forget(self, id: int) -> None:
        del self._running[id]
        self._sandbox.release_watch()

    async def _run(self, id: int, given: Watch, request_id: RequestId) -> None:
        held: HeldWatch | None = None
        try:
            held = await _with_patience(lambda: self._sandbox.watch_folder(given.path, given.ignore))
            self._post("watch_started", request_id, watchId=id, **path_fields(given.path))
            await self._follow(id, given.path, held)
        except BackendError as error:
            begun = {"watchId": id} if held is not None else {}
            self._post("watch_error", request_id if held is None else None, **_error(error), **begun)
        finally:
            if held is not None:
                with suppress(BackendError, TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await held.close()

    async def _follow(self, id: int, folder: str, held: HeldWatch) -> None:
        """Follow the watch until the folder is gone."""
        while True:
            while len(self._queue) >= MAX_QUEUED:
                self._sent.clear()
                await self._sent.wait()
            try:
                event = await _with_patience(held.read)
            except GuestUnreachable:
                self._sandbox.check_soon()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for kind, fields in event_messages(folder, event):
                self._post(kind, None, watchId=id, **fields)
            if event.kind == WatchKind.GONE:
                return

    def _post(self, kind: str, request_id: RequestId, **fields: Any) -> None:
        self._queue.append({"type": kind, **fields, **({} if request_id is None else {"requestId": request_id})})
        self._wake()


async def _with_patience(call: Callable[[], Awaitable[T]]) -> T:
    """Call again while the guest has as many watches as it may. Raise TerminalLimit after some time."""
    until = asyncio.get_running_loop().time() + LIMIT_SECONDS
    while True:
        try:
            return await call()
        except TerminalLimit:
            if asyncio.get_running_loop().time() >= until:
                raise
        await asyncio.sleep(RETRY_SECONDS)


def event_messages(folder: str, event: WatchEvent) -> list[tuple[str, dict[str, Any]]]:
    """Return types and fields of the messages for one event; paths are absolute.

    A rename is the end of the former path, which names the new one, and then the new one, which names the former.
    """
    shown = path_fields(event.path_below(folder))
    if event.kind == WatchKind.OVERFLOW:
        return [("watch_overflow", {**shown, "reason": event.reason})]
    if event.kind == WatchKind.GONE:
        message = "The folder is not there any more, or its watch has ended in the machine."
        return [("watch_error", {**shown, "code": "watch_ended", "message": message})]
    entry = {"entry": "directory" if event.is_folder else "file"}
    if event.kind != WatchKind.RENAMED:
        return [(_TYPES[event.kind], {**shown, **entry})]
    new = event.other_below(folder)
    former = path_fields(event.path_below(folder), "renamedFrom")
    return [
        ("watch_unlink", {**shown, **entry, **path_fields(new, "renamedTo")}),
        ("watch_add", {**path_fields(new), **entry, **former}),
    ]


def _error(error: BackendError) -> dict[str, str]:
    code = "watch_limit" if isinstance(error, TerminalLimit) else error.code
    return {"code": code, "message": error.message}
