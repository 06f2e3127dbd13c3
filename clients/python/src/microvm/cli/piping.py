"""The standard input of `ws`, as the program in a workspace is given it."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator

PART = 256 << 10  # bytes


def parts_of_stdin() -> Iterator[bytes]:
    """As they come. Read without a buffer where there is a file: a thread that waits in one would stop the exit."""
    try:
        descriptor = sys.stdin.fileno()
    except io.UnsupportedOperation:
        while part := sys.stdin.buffer.read(PART):
            yield part
        return
    while part := os.read(descriptor, PART):
        yield part
