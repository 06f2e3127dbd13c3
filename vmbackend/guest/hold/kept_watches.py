"""Watches that a guest keeps: several clients read their events, by number, across any number of connections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmbackend.errors import GuestPathInvalid

from .errors import WatchNotFound
from .frames import Fields, GuestGarbage, Request, number, read_nothing, text, texts
from .link import LinkOpener
from .watch import MAX_PATH_BYTES, WatchEvent, read_event

MAX_KEPT = 8
# Bytes of a path and its patterns: as much as the guest shows of them.
MAX_SHOWN = 20 * 1024
_MAX_PATTERNS = 4096
_MAX_ID = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class KeptWatch:
    """A watch of the guest. `folders`: watched when it began. Events have numbers from 0; those before `start` are
    gone, `end` is that of the next one. `active`: False once its folder is gone.
    """

    id: int
    folder: str
    patterns: tuple[str, ...]
    folders: int
    start: int
    end: int
    active: bool


@dataclass(frozen=True, slots=True)
class KeptEvents:
    """Events from number `start` on, and the number of the next one."""

    start: int
    end: int
    events: tuple[WatchEvent, ...]


class KeptWatches:
    """The kept watches of a guest. Belongs to the event loop of its client.

    Any method raises GuestUnreachable if the guest does not answer, RequestUnknown or HoldUnsupported if the machine's
    kit does not keep watches, and WatchNotFound for one that is not there.
    """

    def __init__(self, client: LinkOpener) -> None:
        self._client = client

    async def keep(self, folder: str, patterns: Sequence[str] = ()) -> KeptWatch:
        """Watch everything below an absolute path, but for what the lines of gitignore in `patterns` name.

        Return once all folders are watched. Raise GuestPathInvalid (no folder, or not a usable path), TerminalLimit
        (eight watches, those of connections included). It ends by `end`, with its folder or its machine, or when
        nobody reads it for ten minutes. With GuestUnreachable it may have begun.
        """
        link = await self._client.answering_link()

        def read(fields: Fields) -> KeptWatch:
            id, folders = _read_id(fields), fields.number(4)
            fields.require_end()
            return KeptWatch(id, folder, tuple(patterns), folders, 0, 0, True)

        return await link.request(Request.KEEP_WATCH, _encode(folder, patterns), read=read)

    async def list(self) -> list[KeptWatch]:
        """Return all of them."""
        found = []
        for id in await self._client.repeat_request(Request.KEPT_LIST, read=_read_ids):
            try:
                found.append(await self.show(id))
            except WatchNotFound:  # it has ended in between
                continue
        return found

    async def show(self, id: int) -> KeptWatch:
        """Return one of them."""

        def read(fields: Fields) -> KeptWatch:
            over, folders, start, end = fields.number(1), fields.number(4), fields.offset(), fields.offset()
            folder = fields.path(MAX_PATH_BYTES)
            patterns = fields.short_texts(_MAX_PATTERNS, MAX_SHOWN)
            fields.require_end()
            if start > end:
                raise GuestGarbage
            return KeptWatch(id, folder, patterns, folders, start, end, not over)

        return await self._client.repeat_request(Request.KEPT_SHOW, _id(id), read=read)

    async def end(self, id: int) -> None:
        """End it; its readers are told."""
        await self._client.repeat_request(Request.KEPT_END, _id(id), read=read_nothing)

    async def read(self, id: int, start: int) -> KeptEvents:
        """Return the events from a number on, once there is one; at most 24 KiB of them.

        They begin later if the guest has forgotten some. The last one of a watch is GONE; then WatchNotFound is
        raised. Raise GuestCommandInvalid for a number beyond the next one, TerminalLimit. Waits for any length of
        time; one that is cancelled is forgotten by the guest with its answer.
        """

        def read(fields: Fields) -> KeptEvents:
            first, events = fields.offset(), []
            while fields.left:
                events.append(read_event(fields))
            if first < start or not events:
                raise GuestGarbage
            return KeptEvents(first, first + len(events), tuple(events))

        link = await self._client.connect_guest()
        return await link.request(Request.KEPT_READ, _id(id), number(start, 8), read=read)


def _id(id: int) -> bytes:
    """Raise WatchNotFound for a number that no watch has."""
    if not 0 < id <= _MAX_ID:
        raise WatchNotFound("There is no such watch.")
    return number(id, 4)


def _read_id(fields: Fields) -> int:
    id = fields.number(4)
    if not id:
        raise GuestGarbage
    return id


def _read_ids(fields: Fields) -> list[int]:
    found: list[int] = []
    while fields.left:
        found.append(_read_id(fields))
        if len(found) > MAX_KEPT or found[-1] in found[:-1]:
            raise GuestGarbage
    return found


def _encode(folder: str, patterns: Sequence[str]) -> bytes:
    """Raise GuestPathInvalid."""
    if not folder.startswith("/") or any("\0" in each for each in (folder, *patterns)):
        raise GuestPathInvalid("The path or a pattern cannot be used.")
    try:
        fields = text(folder) + texts(patterns)
    except UnicodeError as error:
        raise GuestPathInvalid("The path or a pattern contains invalid characters.") from error
    if len(folder.encode("utf-8", "surrogateescape")) >= MAX_PATH_BYTES or len(fields) > MAX_SHOWN:
        raise GuestPathInvalid("The path and the patterns are too long.")
    return fields
