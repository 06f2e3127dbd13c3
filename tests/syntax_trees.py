"""Syntax trees of the project's own files."""

from __future__ import annotations

import ast
from pathlib import Path

ATTEMPTS = 5


def syntax_tree(path: Path) -> ast.Module:
    """The tree of a file.

    CPython before 3.11.5 counts the depth of a parse for the whole process: another thread that parses at the same time
    (a traceback that is logged does) makes a SystemError of it.
    """
    source = path.read_text()
    for _ in range(ATTEMPTS - 1):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    return ast.parse(source)
