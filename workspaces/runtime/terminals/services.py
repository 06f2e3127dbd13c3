"""Terminals of a guest, each call with what it keeps. Sockets of the workspace have the same ones."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from vmbackend.guest.hold import HoldClient, TerminalEntry, TerminalLimit, TerminalNotFound
from vmbackend.guest.hold.terminal_fields import TerminalDetails, TerminalExit

MAX_SCROLLBACK = 262_144


@dataclass(frozen=True, slots=True)
class ShownTerminal:
    """A terminal as a response shows it."""

    id: str
    command: tuple[str, ...]
    cols: int
    rows: int
    alive: bool
    exit_code: int | None
    created_at: datetime
    scrollback_size: int


@dataclass(frozen=True, slots=True)
class WantedTerminal:
    """A terminal as it is wanted. No words: the user's shell."""

    words: list[str]
    cols: int
    rows: int
    scrollback: int


def exit_code_of(ended: TerminalExit | None) -> int | None:
    """Return the code of a program's end, 128+N for signal N; None while it runs."""
    if ended is None or ended.signal is None:
        return ended.exit_code if ended else None
    return 128 + signal.Signals[ended.signal]


async def create_terminal(held: HoldClient, wanted: WantedTerminal) -> ShownTerminal:
    """Start a program on a terminal, to which nobody is attached.

    Where there are as many as there may be, the oldest one whose program has ended makes room. Raise TerminalLimit,
    GuestCommandInvalid.
    """
    await _make_room(held)
    made = await held.create_terminal(wanted.words, cols=wanted.cols, rows=wanted.rows, scrollback=wanted.scrollback)
    try:
        await made.detach()
        return shown(await held.show_terminal(made.id))
    finally:
        held.forget_terminal(made.id)


async def list_terminals(held: HoldClient) -> list[ShownTerminal]:
    """Return all terminals."""
    found = []
    for entry in await held.list_terminals():
        with suppress(TerminalNotFound):  # it was removed in between
            found.append(shown(await held.show_terminal(entry.id)))
    return found


async def read_scrollback(held: HoldClient, id: int, limit: int | None) -> tuple[ShownTerminal, bytes]:
    """Return a terminal and the last bytes of its output: at most `limit`, and as many as its creator wanted."""
    details = await held.show_terminal(id)
    entry, size = details.entry, min(details.scrollback, MAX_SCROLLBACK if limit is None else limit)
    data, at = b"", max(entry.end - size, entry.start)
    while at < entry.end:
        found, piece = await held.read_terminal(id, at)
        if not piece:
            break
        # Output that came meanwhile has pushed out what was read before.
        data, at = (data if found == at else b"") + piece, found + len(piece)
    return shown(details), data[-size:] if size else b""


def shown(details: TerminalDetails) -> ShownTerminal:
    entry = details.entry
    return ShownTerminal(
        id=str(entry.id),
        command=details.command,
        cols=entry.cols,
        rows=entry.rows,
        alive=entry.exit is None,
        exit_code=exit_code_of(entry.exit),
        created_at=details.created_at,
        scrollback_size=details.scrollback,
    )


async def _make_room(held: HoldClient) -> None:
    entries = await held.list_terminals()
    if len(entries) < settings.ENV.sandbox_terminals_max:
        return
    ended = [entry for entry in entries if entry.exit is not None]
    if not ended:
        raise TerminalLimit("There are as many terminals as there may be.")
    await close_terminal(held, ended[0])


async def close_terminal(held: HoldClient, entry: TerminalEntry) -> None:
    """Kill a terminal and forget it."""
    await held.close_terminal(entry.id)
