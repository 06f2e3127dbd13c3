"""A console's log, asked of the host that writes it. The log is bounded, so an answer is too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from common.errors import NotFound
from vmbackend.bootlog import clear_boot_log, rotated_path
from workspaces.logs.lines import MAX_TAIL_BYTES, whole_lines
from workspaces.models import Workspace
from workspaces.remote import ask

TASK = "workspaces.tasks.answer_boot_log"
NAMES = ("boot.log", "boot.log.1")


def tail(workspace: Workspace, lines: int) -> bytes:
    """The end of the console log with at least that many lines, where there are so many. Raises VMUnavailable."""
    return _ask(workspace, "tail", lines)


def files(workspace: Workspace) -> list[dict[str, Any]]:
    """Its files: name, size in bytes, when it was written to (seconds since the epoch). Raises VMUnavailable."""
    listed: list[dict[str, Any]] = json.loads(_ask(workspace, "files", 0) or b"[]")
    return listed


def content(workspace: Workspace, name: str) -> bytes:
    """One of the files whole. Raises NotFound, VMUnavailable."""
    found = _ask(workspace, "read", NAMES.index(name))
    if not found:
        raise NotFound("There is no such log file.")
    return found[1:]


def clear_all(workspace: Workspace) -> None:
    """Empty the console log. Raises VMUnavailable."""
    _ask(workspace, "clear", 0)


def _ask(workspace: Workspace, what: str, argument: int) -> bytes:
    return ask(workspace, TASK, what, argument) if workspace.host is not None else b""


def answer(path: Path, what: str, argument: int) -> bytes:
    """vmhost's half."""
    ways = {"tail": _tail, "files": _files, "read": _read, "clear": _clear}
    return ways[what](path, argument)


def _tail(path: Path, lines: int) -> bytes:
    size = MAX_TAIL_BYTES
    found = end_of(path, size)
    if len(found) < size:
        older = end_of(rotated_path(path), size - len(found))
        # A line that was being written when the file was changed goes on in the newer one as another.
        found = older + (b"" if older.endswith(b"\n") else b"\n") + found
    # Twice as many: empty ones are left out later.
    return b"\n".join(found.split(b"\n")[-2 * lines - 1 :])


def end_of(path: Path, size: int) -> bytes:
    """The last bytes of a file, from the start of a line; nothing where there is no file."""
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
    """The content behind one byte, so that an empty file is not a missing one."""
    try:
        with (path, rotated_path(path))[index].open("rb") as file:
            return b"+" + file.read(MAX_TAIL_BYTES)
    except FileNotFoundError:
        return b""


def _clear(path: Path, _: int) -> bytes:
    clear_boot_log(path)
    return b"+"
