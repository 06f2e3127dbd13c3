"""Whether text is UTF-8, by all of its bytes."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable

_PIECE = 1 << 20


def text_is_utf8(file: int, look: Callable[[], None]) -> bool:
    """Of an open file, with a piece of it in memory at a time; `look` is called for each. NUL is in no such text, but
    in UTF-16. Raises OSError, and what `look` raises.
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
