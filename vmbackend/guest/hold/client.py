"""The client of a guest's hold: one connection, opened on demand and opened again when it was lost."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from vmbackend.errors import GuestCommandInvalid, GuestPathInvalid, GuestUnreachable
from vmbackend.guest.translate import UNREACHABLE

from .command import HeldCommands
from .connections import HeldConnections
from .errors import TerminalNotFound
from .frames import CLIENT_ID_BYTES, Answer, Fields, GuestGarbage, Request, number, read_nothing
from .kept_watches import KeptWatches
from .link import HoldLink
from .tasks import HeldTasks
from .terminal import HeldTerminal
from .terminal_fields import (
    MAX_WORDS,
    TerminalDetails,
    TerminalEntry,
    clamp_size,
    encode_start,
    read_details,
    read_list,
    read_piece,
)
from .transport import OpenTransport
from .watch import MAX_PATH_BYTES, HeldWatch

MAX_PATTERNS = 256 * 1024  # characters
# A connection that was silent for as long is asked for an answer before what is sent only once is sent on it: its guest
# may have been killed and started again.
QUIET_SECONDS = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HoldSettings:
    """Times in seconds, sizes in bytes. The first client after a guest's start sets `linger`, as it sets how much of a
    terminal's output the guest keeps.
    """

    # How long a client that lost its connection still stops programs whose buffer is full, so that it misses nothing:
    # longer than a streams process takes to be started again and its clients to be back.
    linger: float = 60.0
    # Unread output of one terminal; at most what the guest keeps.
    window: int = 128 * 1024
    # Bytes that were read last: the guest keeps them while this client is attached, as the client may be killed before
    # it has passed them on. Less than the guest keeps of output; the program waits that much earlier.
    retained: int = 0
    # Unread events of one watch.
    watch_window: int = 64 * 1024
    # The time limit of a connection and of each answer; input has no limit of time.
    timeout: float = 30.0


class HoldClient:
    """The terminals and watches of one guest. Belongs to one event loop; the opener must `close` it.

    A connection that is lost is opened again by the next call that needs it, once for all that wait; terminals then go
    on where they were. Raises GuestUnreachable if the guest does not answer.
    """

    def __init__(self, open_transport: OpenTransport, settings: HoldSettings | None = None) -> None:
        self._open_transport = open_transport
        self._settings = settings or HoldSettings()
        self._client_id = secrets.token_bytes(CLIENT_ID_BYTES)
        self._terminals: dict[int, HeldTerminal] = {}
        self._watches: dict[int, Callable[[HoldLink, Fields], None]] = {}
        self._last_watch = 0  # ids of watches only grow
        self.commands = HeldCommands(self)
        self.tasks = HeldTasks(self, self._settings.timeout)
        self.kept_watches = KeptWatches(self)
        self.connections = HeldConnections(self)
        self._instance = b""
        self._link: HoldLink | None = None
        self._connecting = asyncio.Lock()
        self._closed = False

    async def create_terminal(
        self,
        command: Sequence[str] | None = None,
        *,
        cols: int = 120,
        rows: int = 30,
        env: Mapping[str, str] | None = None,
        working_dir: str | None = None,
        user: str | None = None,
        scrollback: int | None = None,
    ) -> HeldTerminal:
        """Start a command on a terminal of its own, attached from its first byte; size in characters.

        `scrollback`: how many bytes of output are to be shown of it, for `show_terminal`; an older kit refuses it
        (RequestUnknown).

        None: the user's shell of the image's /etc/passwd, else /bin/bash, /bin/sh, else the kit's; no login shell.
        Raise GuestCommandInvalid (no such program, user or directory), TerminalLimit. With GuestUnreachable a terminal
        may have been made: see `list_terminals`.
        """
        words, variables = list(command or ()), [f"{name}={value}" for name, value in (env or {}).items()]
        fields = encode_start(words, variables, working_dir, user)
        fields += b"" if scrollback is None else number(scrollback, 4)
        size = clamp_size(cols, rows)
        link = await self.connect_guest()
        window = self._window(link)

        def begin(answer: Fields) -> HeldTerminal:
            id = answer.terminal_id()
            answer.require_end()
            if (former := self._terminals.get(id)) is not None:
                former.mark_gone()  # the guest forgot it some time after its end, and uses its id again
            terminal = HeldTerminal(self, id, offset=0, window=window, retained=self._settings.retained)
            terminal.begin_output(link)
            self._terminals[id] = terminal
            return terminal

        head = number(size[0], 2) + number(size[1], 2) + number(window, 4)
        return await self._timed_request(link, Request.CREATE, head, fields, read=begin)

    async def list_terminals(self) -> list[TerminalEntry]:
        """Return all terminals of the guest, those of other clients included."""
        return await self.repeat_request(Request.LIST, read=read_list)

    async def show_terminal(self, id: int) -> TerminalDetails:
        """Return a terminal with its command. Raise TerminalNotFound, RequestUnknown (an older kit)."""
        return await self.repeat_request(Request.TERMINAL_SHOW, number(id, 4), read=read_details)

    async def read_terminal(self, id: int, offset: int) -> tuple[int, bytes]:
        """Return output that is kept, and its offset: from `offset` on, or from the oldest byte; b"" at the end.

        At most 24 KiB. Nobody is attached by it, and no program waits. Raise what `show_terminal` raises.
        """

        def read(fields: Fields) -> tuple[int, bytes]:
            found, piece = read_piece(fields)
            if found < offset:
                raise GuestGarbage
            return found, piece

        return await self.repeat_request(Request.TERMINAL_READ, number(id, 4), number(offset, 8), read=read)

    async def wait_change(self, known: int) -> int:
        """Return a number once it is not `known`: it changes with each terminal and kept watch that comes or goes.

        0 is no such number. Waits for any length of time, for one caller at a time. Raise RequestUnknown (an older
        kit).
        """
        link = await self.connect_guest()
        return await link.request(Request.CHANGES, number(known, 8), read=_read_number)

    async def close_terminal(self, id: int) -> None:
        """Kill all processes of a terminal and forget it. Raise TerminalNotFound."""
        self.forget_terminal(id)
        await self.repeat_request(Request.CLOSE, number(id, 4), read=read_nothing)

    async def attach_terminal(self, id: int, offset: int = 0) -> HeldTerminal:
        """Return a terminal from that offset of its output on. Raise TerminalNotFound.

        One that this client has already is returned as it is; `detach` and attach it to go back.
        """
        if id in self._terminals:
            return self._terminals[id]
        entries = {entry.id: entry for entry in await self.list_terminals()}
        entry = entries.get(id)
        if entry is None:
            raise TerminalNotFound("There is no such terminal.")
        if offset > entry.end:
            raise GuestCommandInvalid("The terminal has not written that many bytes.")
        link = await self.connect_guest()
        window, retained = self._window(link), self._settings.retained
        terminal = HeldTerminal(self, id, offset=offset, window=window, retained=retained)
        return self._terminals.setdefault(id, terminal)

    async def watch_folder(self, folder: str, patterns: Sequence[str] = ()) -> HeldWatch:
        """Watch everything below an absolute path, but for what the lines of gitignore in `patterns` name.

        Return once all folders are watched. Raise GuestPathInvalid (no folder, or not a usable path), TerminalLimit.
        """
        if not folder.startswith("/") or any("\0" in each for each in (folder, *patterns)):
            raise GuestPathInvalid("The path or a pattern cannot be used.")
        if len(folder.encode("utf-8", "replace")) >= MAX_PATH_BYTES:
            raise GuestPathInvalid("The path is too long.")
        if len(patterns) > MAX_WORDS or sum(map(len, patterns)) > MAX_PATTERNS:
            raise GuestPathInvalid("The patterns are too long.")
        try:
            watch = HeldWatch(self, folder, patterns, self._settings.watch_window)
        except UnicodeError as error:
            raise GuestPathInvalid("The path or a pattern contains invalid characters.") from error
        await watch.begin()
        return watch

    async def close(self, *, returns: bool = False) -> None:
        """Close the connection; terminals stay in the guest. Idempotent.

        No program waits for this client, unless it `returns`: then the guest waits as for one that lost its connection.
        """
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            if not returns:
                link.post(Request.BYE)
            await link.close()

    # For terminals

    async def connect_guest(self) -> HoldLink:
        """Return the open connection, or a new one. Raise GuestUnreachable, HoldUnsupported."""
        async with self._connecting:
            if self._closed:
                raise GuestUnreachable("The client was closed.")
            if self._link is not None and not self._link.lost.done():
                return self._link
            former, self._link = self._link, None
            if former is not None:
                await former.close()
            self._link = await self._connect()
            return self._link

    async def answering_link(self) -> HoldLink:
        """Return a connection that is known to work, for what is sent only once. Raise what `connect_guest` raises."""
        link = await self.connect_guest()
        if time.monotonic() - link.heard_at > QUIET_SECONDS:
            await self.repeat_request(Request.LIST, read=Fields.rest)
            link = await self.connect_guest()
        return link

    async def repeat_request(self, kind: Request, *parts: bytes, read: Callable[[Fields], T]) -> T:
        """Send a request that may be carried out twice; it is sent again, once, if the connection turns out to be
        lost.
        """
        link = await self.connect_guest()
        try:
            return await self._timed_request(link, kind, *parts, read=read)
        except GuestUnreachable:
            if not link.lost.done() or isinstance(link.lost.result(), GuestGarbage):
                raise
        return await self._timed_request(await self.connect_guest(), kind, *parts, read=read)

    def forget_terminal(self, id: int) -> None:
        """Forget a terminal that was closed."""
        self._terminals.pop(id, None)

    def register_watch(self, id: int, receive: Callable[[HoldLink, Fields], None]) -> None:
        """Register a watch that began: its events go to `receive`."""
        self._watches[id] = receive
        self._last_watch = max(self._last_watch, id)

    def forget_watch(self, id: int) -> None:
        """Forget a watch that ended."""
        self._watches.pop(id, None)

    def _window(self, link: HoldLink) -> int:
        return max(1, min(self._settings.window, link.buffer_size))

    async def _timed_request(self, link: HoldLink, kind: Request, *parts: bytes, read: Callable[[Fields], T]) -> T:
        try:
            async with asyncio.timeout(self._settings.timeout):
                return await link.request(kind, *parts, read=read)
        except TimeoutError as error:
            await link.close()
            raise GuestUnreachable(UNREACHABLE) from error

    async def _connect(self) -> HoldLink:
        try:
            async with asyncio.timeout(self._settings.timeout):
                transport = await self._open_transport()
                others = self.tasks.receiver(self.connections.receiver(self._receive))
                link = HoldLink(transport, self.commands.receiver(others))
                try:
                    await link.greet(self._client_id)
                except BaseException:
                    await link.close()
                    raise
        except TimeoutError as error:
            raise GuestUnreachable(UNREACHABLE) from error
        if link.instance != self._instance:
            # The ids of another process of the guest mean other terminals.
            former, self._terminals = self._terminals, {}
            for terminal in former.values():
                terminal.mark_gone()
        self._instance = link.instance
        return link

    def _receive_event(self, link: HoldLink, id: int, fields: Fields) -> None:
        if id in self._watches:
            self._watches[id](link, fields)
        elif id > self._last_watch:
            raise GuestGarbage
        # else it was under way when the watch ended

    def _receive(self, link: HoldLink, kind: int, about: int, fields: Fields) -> None:
        if kind == Answer.EVENT:
            self._receive_event(link, about, fields)
            return
        terminal = self._terminals.get(about)
        if terminal is None:
            return  # under way when it was closed
        if kind == Answer.OUTPUT:
            terminal.receive_output(link, fields)
        elif kind == Answer.EXITED:
            terminal.receive_exit(link, fields)
        elif kind == Answer.BEHIND:
            terminal.receive_behind(link, fields)
        else:
            raise GuestGarbage


def _read_number(fields: Fields) -> int:
    value = fields.number(8)
    fields.require_end()
    return value
