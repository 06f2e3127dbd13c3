"""Trees of a runtime's files as lines of JSON, while the service finds them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TypedDict, cast

from microvm.errors import ConnectionFailed, error_of
from microvm.types.runtime_files import RuntimeEntry

_LONGEST_LINE = 128 << 20  # bytes; a text of 16 MiB, escaped


class TreeQuery(TypedDict, total=False):
    """The query of `stream`: that of `list`."""

    path: str
    nested: bool
    flatten: bool
    light: bool
    include_hash: bool
    include_content: bool
    include_extensions: bool
    code_files_only: bool
    use_gitignore: bool
    max_depth: int
    path_filter: str
    include_ext: str
    ignore_patterns: str
    max_content_budget: int


class TreeParser:
    """The entries of one stream."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_done = False

    def entries_in(self, part: bytes) -> Iterator[RuntimeEntry]:
        """Yield the entries whose lines end in these bytes.

        Raises ApiError where the service says that it failed, ConnectionFailed for what is no line of a tree.
        """
        begin, searched = 0, len(self._rest)
        self._rest += part
        while (end := self._rest.find(b"\n", max(begin, searched))) >= 0:
            line, begin = bytes(self._rest[begin:end]), end + 1
            if (entry := self._read_line(line)) is not None:
                yield entry
        del self._rest[:begin]
        if len(self._rest) > _LONGEST_LINE:
            raise ConnectionFailed("A line of the tree is too long.")

    def finish(self) -> None:
        """Raises ConnectionFailed where the last line has not come."""
        if not self._is_done:
            raise ConnectionFailed("The tree broke off; what came is not all of it.")

    def _read_line(self, line: bytes) -> RuntimeEntry | None:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, Mapping):
            raise ConnectionFailed("The service sent what is no tree.")
        event = found.get("event")
        if event == "error":
            raise error_of(200, line)  # it had begun to answer
        self._is_done = self._is_done or event == "done"
        return None if event is not None else cast("RuntimeEntry", found)
