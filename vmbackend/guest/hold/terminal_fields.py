"""Terminals in the frames of a hold: what starts one, and what the guest says of them."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from vmbackend.errors import GuestCommandInvalid
from vmbackend.guest.commands import MAX_ARGUMENT

from .frames import COMMAND_WORDS, WORD_BYTES, Fields, GuestGarbage, text, texts
from .watch import MAX_PATH_BYTES

MAX_TERMINALS = 64  # of a guest; also what a list of a hostile one may have
MAX_ARGUMENTS = 1 << 20  # bytes of arguments and environment
MAX_WORDS = 4096
MAX_SIZE = 1000  # columns and rows


@dataclass(frozen=True, slots=True)
class TerminalExit:
    """The end of a terminal's program: its exit code, or the name of the signal that killed it (`SIGKILL`)."""

    exit_code: int | None
    signal: str | None


@dataclass(frozen=True, slots=True)
class TerminalEntry:
    """A terminal in the guest's list. Offsets count the bytes of its output; those before `start` are gone."""

    id: int
    cols: int
    rows: int
    start: int
    end: int
    exit: TerminalExit | None


@dataclass(frozen=True, slots=True)
class TerminalDetails:
    """A terminal with what its creator gave: the first words of its command (none: the user's shell), when, and how
    many bytes of output are to be shown of it.
    """

    entry: TerminalEntry
    command: tuple[str, ...]
    created_at: datetime
    scrollback: int


def read_entry(fields: Fields) -> TerminalEntry:
    """Return the next entry of a list. Raise GuestGarbage."""
    id, cols, rows = fields.terminal_id(), fields.number(2), fields.number(2)
    start, end, ended = fields.offset(), fields.offset(), fields.number(1)
    how = read_exit(fields)
    if start > end:
        raise GuestGarbage
    return TerminalEntry(id, cols, rows, start, end, how if ended else None)


def read_details(fields: Fields) -> TerminalDetails:
    """Return the answer to TERMINAL_SHOW. Raise GuestGarbage."""
    entry, created, scrollback = read_entry(fields), fields.time(), fields.number(4)
    command = fields.short_texts(COMMAND_WORDS, WORD_BYTES)
    fields.require_end()
    if created is None:
        raise GuestGarbage
    return TerminalDetails(entry, command, created, scrollback)


def read_piece(fields: Fields) -> tuple[int, bytes]:
    """Return the answer to TERMINAL_READ: an offset and the bytes there."""
    return fields.offset(), fields.rest()


def clamp_size(cols: int, rows: int) -> tuple[int, int]:
    """Return the size in characters, clamped to what terminal programs support."""
    return min(max(cols, 1), MAX_SIZE), min(max(rows, 1), MAX_SIZE)


def read_exit(fields: Fields) -> TerminalExit:
    """Return how a program ended."""
    by_signal, value = fields.number(1), fields.number(4)
    if not by_signal:
        return TerminalExit(value & 0xFF, None)
    known = value in {int(each) for each in signal.Signals}
    return TerminalExit(None, signal.Signals(value).name if known else "SIGKILL")


def encode_start(words: Sequence[str], variables: Sequence[str], working_dir: str | None, user: str | None) -> bytes:
    """Return the fields of CREATE after its sizes. Raise GuestCommandInvalid."""
    if any("\0" in word for word in (*words, *variables, working_dir or "", user or "")):
        raise GuestCommandInvalid("The command or its environment contains a NUL character.")
    if words and not words[0]:
        raise GuestCommandInvalid("The command is empty.")
    if any(variable.startswith("=") for variable in variables):
        raise GuestCommandInvalid("An environment variable's name is empty.")
    try:
        fields = text(user or "") + text(working_dir or "") + texts(words) + texts(variables)
    except UnicodeError as error:
        raise GuestCommandInvalid("The command or its environment contains invalid characters.") from error
    longest = max((len(word) for word in (*words, *variables)), default=0)
    if len(fields) > MAX_ARGUMENTS or longest > MAX_ARGUMENT or max(len(words), len(variables)) > MAX_WORDS:
        raise GuestCommandInvalid("The command or its environment is too long.")
    if any(len((each or "").encode("utf-8", "surrogateescape")) >= MAX_PATH_BYTES for each in (working_dir, user)):
        raise GuestCommandInvalid("The working directory or the user is too long.")
    return fields


def read_list(fields: Fields) -> list[TerminalEntry]:
    """Return the answer to LIST. Raise GuestGarbage."""
    count = fields.number(4)
    if count > MAX_TERMINALS:
        raise GuestGarbage
    found = []
    for _ in range(count):
        found.append(read_entry(fields))
    fields.require_end()
    return found
