"""The layers of the guest's C program: no circle between its files, by #include or by symbol.

A header declares the file of its name; `guest.h`, which has none, declares the files without a header of their own.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.circles import circles
from tests.compiled import COMPILER
from vmbackend.guest.kit import FOLDER

SOURCES = FOLDER / "src"
INCLUDE = re.compile(r'^#include "(\w+)\.h"', re.MULTILINE)
DECLARATION = re.compile(
    r"^(?:extern [^;]*?(\w+)(?:\[[^;]*)?;|(?!static|typedef)[a-z][\w *]*?(\w+)\(.*;)", re.MULTILINE
)
needs_compiler = pytest.mark.skipif(not all(map(shutil.which, (COMPILER, "nm"))), reason="needs the C compiler")


@dataclass(frozen=True)
class Symbols:
    """External names of one object."""

    defined: set[str]
    used: set[str]


def files(ending: str) -> list[Path]:
    # The lookup library is a program of its own, which sftp-server loads.
    return [path for path in sorted(SOURCES.glob(f"*.{ending}")) if path.stem != "lookup"]


@pytest.fixture(scope="module")
def symbols(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Symbols]:
    """The symbols of each file, compiled."""
    folder = tmp_path_factory.mktemp("objects")
    subprocess.run([COMPILER, "-c", "-std=gnu11", "-w", *files("c")], cwd=folder, check=True)
    return {path.stem: read_symbols(path) for path in sorted(folder.glob("*.o"))}


def read_symbols(path: Path) -> Symbols:
    listed = subprocess.run(["nm", "--extern-only", path], capture_output=True, text=True, check=True).stdout
    kinds = {name: kind for *_, kind, name in map(str.split, listed.splitlines())}
    used = {name for name, kind in kinds.items() if kind == "U"}
    return Symbols(kinds.keys() - used, used)


def users(symbols: dict[str, Symbols]) -> dict[str, set[str]]:
    """File -> files whose names it uses."""
    places = {name: stem for stem, each in symbols.items() for name in each.defined}
    return {stem: {places[name] for name in each.used if name in places} for stem, each in symbols.items()}


def includes(paths: list[Path]) -> dict[str, set[str]]:
    """File, with its header -> headers of others that it includes."""
    graph: dict[str, set[str]] = {path.stem: set() for path in paths}
    for path in paths:
        graph[path.stem] |= set(INCLUDE.findall(path.read_text())) - {path.stem}
    return graph


def declared(header: Path) -> set[str]:
    return {variable or function for variable, function in DECLARATION.findall(header.read_text())}


def test_no_circle_by_include() -> None:
    graph = includes([*files("c"), *files("h")])
    assert graph["hold_views"] == {"guest", "hold_frames", "hold_state"}
    assert circles(graph) == []


@needs_compiler
def test_no_circle_by_symbol(symbols: dict[str, Symbols]) -> None:
    graph = users(symbols)
    assert len(graph) == len(files("c"))
    assert graph["watch_limits"] == {"watch_events", "watch_tree"}
    assert circles(graph) == []


@needs_compiler
def test_a_header_declares_all_that_its_file_has_for_others_and_nothing_else(symbols: dict[str, Symbols]) -> None:
    headers = [path for path in files("h") if path.stem in symbols]
    assert len(headers) > 20
    assert {path.stem: declared(path) for path in headers} == {
        path.stem: symbols[path.stem].defined for path in headers
    }


@needs_compiler
def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("int a;\nint a_of(int);\n")
    (tmp_path / "a.c").write_text('#include "a.h"\n#include "b.h"\nint a_of(int x) { return b_of(x); }\n')
    (tmp_path / "b.h").write_text("int b_of(int);\n")
    (tmp_path / "b.c").write_text('#include "a.h"\n#include "b.h"\nint b_of(int x) { return a_of(x); }\n')
    subprocess.run([COMPILER, "-c", "a.c", "b.c"], cwd=tmp_path, check=True)
    assert circles(users({name: read_symbols(tmp_path / f"{name}.o") for name in "ab"})) == [["a", "b"]]
    assert circles(includes(sorted(tmp_path.glob("*.[ch]")))) == [["a", "b"]]
