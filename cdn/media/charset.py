"""Detection of UTF-8 in text, by all of its bytes."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable

_PIECE = 1 << 20


def text_is_utf8(file: int, look: Callable[[], None]) -> bool:
    """Return whether an open file is UTF-8. One piece of it is in memory at a time; `look` is called for each.

    A text with NUL does not count as UTF-8: it may be UTF-16. Raise OSError, and errors of `look`.
    """
    decoder, offset = codecs.getincrementaldecoder("utf-8")(), 0
    try:
        while piece := os.pread(file, _PIECE, offset):
            look()
            if "\0" in decoder.decode(piece):
                return False
            offset += len(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
