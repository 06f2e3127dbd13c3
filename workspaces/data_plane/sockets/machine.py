"""The terminals of one machine, as all of its sockets in this process share them: one connection to its guest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol, TypeVar

from django.conf import settings

from common.async_threads import in_pool_thread
from common.sse.calls import cancel_task
from vmbackend.backend import open_hold
from vmbackend.errors import BackendError
from vmbackend.guest.hold import (
    HeldTerminal,
    HeldWatch,
    HoldClient,
    HoldSettings,
    InputFull,
    TerminalEntry,
    TerminalLimit,
    TerminalNotFound,
)
from vmbackend.guest.hold.kept_watches import KeptWatches
from vmbackend.guest.session import GuestAddress
from workspaces import last_used
from workspaces.data_plane.sockets.output import IN_PROCESS
from workspaces.data_plane.sockets.pace import MessagePace
from workspaces.data_plane.sockets.terminal import SharedTerminal
from workspaces.models import Workspace
from workspaces.states import Status

logger = logging.getLogger(__name__)

# A socket is a use; well below the shortest idle time.
USE_SECONDS = 20.0
# Between two looks at the workspace's row while its guest does not answer.
CHECK_SECONDS = 2.0
# Bytes of input of all terminals that their programs do not read.
MAX_WAITING_INPUT = 4 << 20


class Socket(Protocol):
    """The methods of a socket that its machine calls."""

    def wake(self) -> None: ...

    def end(self, reason: str) -> None:
        """End the socket: the machine does not run any more."""

    @property
    def cut(self) -> bool:
        """Return whether this process ended the socket, so that its client comes back."""


S = TypeVar("S", bound=Socket)


class MachineTerminals:
    """The terminals of a machine. Belongs to one event loop; made for the first socket, closed with the last."""

    def __init__(self, address: GuestAddress) -> None:
        self.address = address
        self.sockets: set[Socket] = set()
        self.terminals: dict[int, SharedTerminal] = {}
        self._client: HoldClient = open_hold(address, HoldSettings(retained=IN_PROCESS))
        # One state at a time: a machine that asks for many does not hold up others.
        self.states = asyncio.Lock()
        self.pace = MessagePace()
        self._locks: dict[int, asyncio.Lock] = {}
        self._watches = 0  # of all sockets
        self._check_wanted = asyncio.Event()
        self._using = asyncio.ensure_future(self._use_forever())

    async def create(self, argv: Sequence[str] | None, size: tuple[int, int], cwd: str | None) -> SharedTerminal:
        """Start a program; `size` in columns and rows. Raise GuestCommandInvalid, TerminalLimit, GuestUnreachable,
        HoldUnsupported.
        """
        await self._make_room()
        await self._drop_ended()
        held = await self._client.create_terminal(argv, cols=size[0], rows=size[1], working_dir=cwd)
        return self._share(held, size, 0)

    async def open(self, id: int) -> SharedTerminal:
        """Return a terminal with all output that the guest keeps of it. Raise TerminalNotFound, GuestUnreachable."""
        async with self._locks.setdefault(id, asyncio.Lock()):
            terminal = self.terminals.get(id)
            if terminal is not None and not terminal.gone:
                return terminal
            entry = next((entry for entry in await self.list() if entry.id == id), None)
            if entry is None:
                raise TerminalNotFound("There is no such terminal.")
            if terminal is not None:
                await self.release(terminal)
            return await self._open(entry)

    async def list(self) -> list[TerminalEntry]:
        """Return the guest's terminals."""
        return await self._client.list_terminals()

    async def close_terminal(self, id: int) -> SharedTerminal:
        """Kill a terminal. Raise TerminalNotFound, GuestUnreachable."""
        terminal = await self.open(id)
        await terminal.close()
        self._forget(terminal)
        return terminal

    async def release_unread(self, terminal: SharedTerminal) -> None:
        """Give a terminal back to its guest if no socket is attached."""
        async with self._locks.setdefault(terminal.id, asyncio.Lock()):
            if not terminal.places and self.terminals.get(terminal.id) is terminal:
                await self.release(terminal)

    async def release(self, terminal: SharedTerminal) -> None:
        self._forget(terminal)
        await terminal.release()
        self._client.forget_terminal(terminal.id)

    def require_input_room(self, size: int) -> None:
        """Raise InputFull if so many bytes more would be too much input that waits, of all terminals."""
        if sum(terminal.input_size for terminal in self.terminals.values()) + size > MAX_WAITING_INPUT:
            raise InputFull("The machine's programs do not read their input, of which 4 MiB waits.")

    def reserve_watch(self) -> None:
        """Count one more watch, until `release_watch`. Raise TerminalLimit at the limit of this process."""
        limit = settings.ENV.sandbox_watches_max
        if self._watches >= limit:
            raise TerminalLimit(f"A machine has at most {limit} watches.")
        self._watches += 1

    def release_watch(self) -> None:
        self._watches -= 1

    async def watch_folder(self, folder: str, patterns: Sequence[str]) -> HeldWatch:
        """Return once all folders are watched. Raise GuestPathInvalid, TerminalLimit, GuestUnreachable."""
        return await self._client.watch_folder(folder, patterns)

    async def close(self, *, returns: bool) -> None:
        """End the connection; terminals go on. `returns`: their programs wait for clients that come back."""
        await cancel_task(self._using)
        for terminal in list(self.terminals.values()):
            await terminal.release(detach=False)
        self.terminals.clear()
        await self._client.close(returns=returns)

    @property
    def kept_watches(self) -> KeptWatches:
        """Return the watches that the guest keeps, on the connection of its terminals."""
        return self._client.kept_watches

    async def wait_change(self, known: int) -> int:
        """Return what `HoldClient.wait_change` returns."""
        return await self._client.wait_change(known)

    def end_missing(self, known: Iterable[SharedTerminal], listed: Collection[int]) -> None:
        """End those of the terminals that a later list of the guest has not any more."""
        for terminal in known:
            if terminal.id not in listed and self.terminals.get(terminal.id) is terminal:
                self._forget(terminal)
                terminal.end_replaced()
                self._client.forget_terminal(terminal.id)

    def check_soon(self) -> None:
        """Check soon whether the machine still runs: the guest does not answer."""
        self._check_wanted.set()

    async def _open(self, entry: TerminalEntry) -> SharedTerminal:
        await self._drop_ended()
        held = await self._client.attach_terminal(entry.id, entry.start)
        terminal = self._share(held, (entry.cols, entry.rows), entry.start)
        try:
            await terminal.fill(entry.end)
        except BaseException:
            await self.release(terminal)
            raise
        return terminal

    def _share(self, held: HeldTerminal, size: tuple[int, int], start: int) -> SharedTerminal:
        if (former := self.terminals.get(held.id)) is not None:
            # A guest may give an id again that it has given before, as often as it likes.
            former.end_replaced()
        terminal = self.terminals[held.id] = SharedTerminal(held, size, start, self.check_soon)
        return terminal

    def _forget(self, terminal: SharedTerminal) -> None:
        if self.terminals.get(terminal.id) is terminal:
            del self.terminals[terminal.id]

    async def _make_room(self) -> None:
        """Forget one of the ended terminals that no socket reads, if the limit is reached. Raise TerminalLimit."""
        entries = await self.list()
        limit = settings.ENV.sandbox_terminals_max
        ended = [entry for entry in entries if entry.exit is not None and not self._is_read(entry.id)]
        if len(entries) < limit:
            return
        if not ended:
            raise TerminalLimit(f"A machine has at most {limit} terminals.")
        await self.close_terminal(ended[0].id)

    async def _drop_ended(self) -> None:
        """Drop output, so that this process has no more terminals than a machine may have, whatever its guest lists.
        Ended terminals go, first of all those whose sockets know of the end. Raise TerminalLimit.
        """
        limit = settings.ENV.sandbox_terminals_max
        while len(self.terminals) >= limit:
            ended = [terminal for terminal in self.terminals.values() if terminal.over]
            if not ended:
                raise TerminalLimit(f"A machine has at most {limit} terminals.")
            dropped = min(ended, key=lambda each: sum(not place.end_sent for place in each.places.values()))
            dropped.places.clear()
            await self.release(dropped)

    def _is_read(self, id: int) -> bool:
        terminal = self.terminals.get(id)
        return terminal is not None and bool(terminal.places)

    async def _use_forever(self) -> None:
        while True:
            self._check_wanted.clear()  # before the look: what is wanted from its begin on leads to another one
            try:
                reason = await in_pool_thread(self._record_use)
            except Exception as exc:  # while the database does not answer, sockets stay open
                logger.warning("the machine of open sockets cannot be checked: %s", exc)
                reason = ""
            if reason:
                for socket in list(self.sockets):
                    socket.end(reason)
            await asyncio.sleep(CHECK_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(USE_SECONDS - CHECK_SECONDS):
                    await self._check_wanted.wait()

    def _record_use(self) -> str:
        """In a thread. Return why the sockets must end; empty if they need not."""
        columns = ("status", "ip", "control_port", "ssh_host_key")
        row = Workspace.objects.filter(pk=self.address.machine_id).values_list(*columns).first()
        if row is None or row[0] != Status.RUNNING:
            return "the machine does not run"
        if GuestAddress(self.address.machine_id, row[1] or "", row[2], row[3]) != self.address:
            return "the machine was started again"
        last_used.record_use(self.address.machine_id)
        return ""


class OpenMachines:
    """The machines with open sockets, of one event loop."""

    def __init__(self) -> None:
        self._open: dict[GuestAddress, MachineTerminals] = {}

    @asynccontextmanager
    async def joined(self, address: GuestAddress, make: Callable[[MachineTerminals], S]) -> AsyncIterator[S]:
        """Within the context the socket that `make` makes is one of its machine's."""
        machine = self._open.get(address)
        if machine is None:
            machine = self._open[address] = MachineTerminals(address)
        socket = make(machine)
        machine.sockets.add(socket)
        try:
            yield socket
        finally:
            machine.sockets.discard(socket)
            if not machine.sockets and self._open.get(address) is machine:
                del self._open[address]
                with suppress(BackendError):
                    await asyncio.shield(machine.close(returns=socket.cut))
