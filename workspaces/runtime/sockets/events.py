"""Events of watchers as frames, and those that wait for the client of one socket."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from vmbackend.guest.hold import KeptWatch, WatchEvent, WatchKind
from workspaces.data_plane.fields import path_fields

# Characters of frames that a client has not taken. A watcher of which one has no room for has lost events, and says so.
MAX_WAITING = 256 * 1024
_OPERATIONS = {WatchKind.ADDED: "create", WatchKind.CHANGED: "write", WatchKind.REMOVED: "remove"}
ENDED = "The watcher has ended: its folder is gone, or it was removed."
SLOW = "The client did not read fast enough."


def ready_frame(watch: KeptWatch) -> str:
    """Return the first frame of a watcher."""
    return _frame("ready", watch.id, **path_fields(watch.folder, "root"), dirs=watch.folders)


def overflow_frame(watcher_id: int, message: str) -> str:
    """Return the frame that says that events were lost, or that no more come."""
    return _frame("overflow", watcher_id, message=message)


def event_frames(watch: KeptWatch, event: WatchEvent) -> list[str]:
    """Return the frames of one event; paths are absolute."""
    if event.kind == WatchKind.GONE:
        return [overflow_frame(watch.id, ENDED)]
    if event.kind == WatchKind.OVERFLOW:
        return [overflow_frame(watch.id, event.reason)]
    path = path_fields(event.path_below(watch.folder))
    if event.kind != WatchKind.RENAMED:
        return [_frame("change", watch.id, **path, op=_OPERATIONS[event.kind])]
    new = event.other_below(watch.folder)
    return [
        _frame("change", watch.id, **path, op="rename", **path_fields(new, "to")),
        _frame("change", watch.id, **path_fields(new), op="create"),
    ]


class WaitingEvents:
    """Frames that one client has not taken, in order."""

    def __init__(self) -> None:
        self._frames: deque[tuple[int, str]] = deque()
        self._size = 0
        self._lossy: set[int] = set()  # watchers whose last frame says that events were lost

    @property
    def is_full(self) -> bool:
        """Return whether a watcher would lose events now."""
        return self._size > MAX_WAITING

    def add(self, watcher_id: int, frame: str) -> None:
        """Queue a frame of a watcher; if there is no room, one in its place says that events were lost."""
        if self._size <= 2 * MAX_WAITING:  # what one answer of the guest has always fits, if it was read with room
            self._lossy.discard(watcher_id)
            self._append(watcher_id, frame)
        elif watcher_id not in self._lossy:
            self._lossy.add(watcher_id)
            self._append(watcher_id, overflow_frame(watcher_id, SLOW))

    def forget(self, watcher_id: int) -> None:
        """Forget a watcher, but for its frames."""
        self._lossy.discard(watcher_id)

    def take(self) -> str | None:
        """Return the next frame; None if there is none."""
        if not self._frames:
            return None
        _, frame = self._frames.popleft()
        self._size -= len(frame)
        return frame

    def _append(self, watcher_id: int, frame: str) -> None:
        self._frames.append((watcher_id, frame))
        self._size += len(frame)


def _frame(kind: str, watcher_id: int, **fields: Any) -> str:
    return json.dumps({"channel": "watcher", "type": kind, "watcher_id": str(watcher_id), **fields})
