"""How docstrings begin (CONTRIBUTING.md, How we write)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from tests.syntax_trees import syntax_tree

ROOT = Path(settings.ROOT)
LEFT_OUT = {"benchmarks", "docs", "scripts", "tests", "var"}
# A docstring that begins so has no subject, or is a condition without a sentence.
BEGINNINGS = re.compile(r"(Of|That of|Those|What|Where|Who|Whose|None where)\b")
# Texts of the API's description, which become the client's.
GENERATED = re.compile(r"clients/python/src/microvm/(aio|sync)/routes/|clients/python/src/microvm/types/")


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring of a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(syntax_tree(path)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def source_files() -> Iterator[tuple[str, Path]]:
    """Yield name and path of each file of the source tree that people write."""
    for folder in sorted(ROOT.iterdir()):
        if folder.is_dir() and folder.name[0] != "." and folder.name not in LEFT_OUT:
            for path in sorted(folder.rglob("*.py")):
                name = str(path.relative_to(ROOT))
                if "migrations" not in path.parts and not GENERATED.match(name):
                    yield name, path


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    places = [
        f"{name}:{line}: {text.splitlines()[0]}"
        for name, path in source_files()
        for line, text in docstrings(path)
        if BEGINNINGS.match(text)
    ]
    assert places == []
