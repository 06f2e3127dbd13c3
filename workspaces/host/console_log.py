"""The host's reply to a request for a console log."""

from __future__ import annotations

import json
from pathlib import Path

from vmbackend.bootlog import clear_boot_log, rotated_path
from workspaces.logs.console import NAMES
from workspaces.logs.lines import MAX_TAIL_BYTES, whole_lines


def read_console(path: Path, what: str, argument: int) -> bytes:
    """Carry out a request for a console log, in vmhost. `what`: `tail` (argument: lines), `files`, `read` (argument:
    index of the file) or `clear`.
    """
    handlers = {"tail": _tail, "files": _files, "read": _read, "clear": _clear}
    return handlers[what](path, argument)


def _tail(path: Path, lines: int) -> bytes:
    size = MAX_TAIL_BYTES
    found = end_of(path, size)
    if len(found) < size:
        older = end_of(rotated_path(path), size - len(found))
        # A line that was being written at the rotation continues in the newer file as another line.
        found = older + (b"" if older.endswith(b"\n") else b"\n") + found
    # Twice as many, because empty lines are dropped later.
    return b"\n".join(found.split(b"\n")[-2 * lines - 1 :])


def end_of(path: Path, size: int) -> bytes:
    """Return the last bytes of a file, from the start of a line; nothing if there is no file."""
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - size))
            found = file.read(size)
    except FileNotFoundError:
        return b""
    return whole_lines(found) if end > size else found


def _files(path: Path, _: int) -> bytes:
    listed = []
    for name, place in zip(NAMES, (path, rotated_path(path)), strict=True):
        try:
            found = place.stat()
        except FileNotFoundError:
            continue
        listed.append({"name": name, "size": found.st_size, "modified": found.st_mtime})
    return json.dumps(listed).encode()


def _read(path: Path, index: int) -> bytes:
    """Return the content after one byte, which distinguishes an empty file from a missing one."""
    try:
        with (path, rotated_path(path))[index].open("rb") as file:
            return b"+" + file.read(MAX_TAIL_BYTES)
    except FileNotFoundError:
        return b""


def _clear(path: Path, _: int) -> bytes:
    clear_boot_log(path)
    return b"+"
