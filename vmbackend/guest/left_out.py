"""Reports of a guest's tar about what it leaves out of an archive."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_BYTES = 64 * 1024
# The kit's busybox, and GNU tar.
_SOCKET = re.compile(rb"^(?:\S*tar|busybox): (\./.+): (?:unknown file type|socket ignored)$", re.MULTILINE)


def sockets_left_out(said: bytes) -> Iterator[str]:
    """Yield paths of sockets, which no archive has; they begin with `./`. A guest may say anything."""
    for path in _SOCKET.findall(said[:MOST_BYTES]):
        yield path.decode("utf-8", "surrogateescape")
