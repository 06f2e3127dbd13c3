#!/usr/bin/env python3
"""Print the size and the grain of the tree: `scripts/measure.py [TIMES]`.

Lines, modules, functions, private helpers with one use, words of documents, and the files that `POST /workspace`
enters, as a test counts them (tests/workspaces/test_entered_files.py). TIMES is a file that `scripts/tests.sh` has
appended to; the seconds of its targets and parts are printed too.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ENTERED_TEST = "tests/workspaces/test_entered_files.py"
# Neither is read as code of the platform.
OTHERS = {"benchmarks", "clients", "migrations", "tests"}


@dataclass
class Measured:
    """The counts of a group of modules."""

    lines: int = 0
    modules: int = 0
    functions: int = 0
    helpers: int = 0
    """Private functions and methods that their module names once beside the definition."""
    files: list[Path] = field(default_factory=list)

    def add(self, path: Path) -> None:
        text = path.read_text()
        nodes = list(ast.walk(ast.parse(text)))
        defined = [node.name for node in nodes if isinstance(node, FUNCTIONS)]
        uses = Counter(node.id for node in nodes if isinstance(node, ast.Name))
        uses += Counter(node.attr for node in nodes if isinstance(node, ast.Attribute))
        self.files.append(path)
        self.lines += text.count("\n")
        self.modules += 1
        self.functions += len(defined)
        self.helpers += sum(uses[name] == 1 for name in defined if name[0] == "_" and not name.endswith("__"))


def tracked_files(pattern: str) -> Iterator[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", pattern], cwd=ROOT, check=True, capture_output=True, text=True)
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if name and path.is_file():
            yield path


def print_code() -> None:
    groups = {name: Measured() for name in ("platform", "clients", "tests", "benchmarks", "migrations")}
    for path in tracked_files("*.py"):
        parts = path.relative_to(ROOT).parts
        kind = next((part for part in parts if part in OTHERS), "platform")
        groups[kind].add(path)
    print(f"{'code':12} {'lines':>8} {'modules':>8} {'functions':>10} {'per 1,000':>10} {'used once':>10}")
    for name, found in groups.items():
        density = 1000 * found.functions / (found.lines or 1)
        print(f"{name:12} {found.lines:8} {found.modules:8} {found.functions:10} {density:10.1f} {found.helpers:10}")


def print_documents() -> None:
    words = {path: len(path.read_text().split()) for path in tracked_files("*.md")}
    print(f"\ndocuments: {sum(words.values())} words in {len(words)} files")


def print_entered_files() -> None:
    """Run the test that counts them, on a database of its own."""
    environment = {name: value for name, value in os.environ.items() if name not in ("STATE", "PORT")}
    with tempfile.NamedTemporaryFile("r") as written:
        run = subprocess.run(
            [ROOT / ".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", ENTERED_TEST],
            cwd=ROOT,
            env=environment | {"ENTERED_FILES": written.name},
            capture_output=True,
            text=True,
            check=False,
        )
        entered = written.read().split()
    if not entered:
        sys.exit(f"The entered files could not be counted:\n{run.stdout}{run.stderr}")
    folders = Counter(str(Path(name).parent) for name in entered)
    print(f"\nPOST /workspace enters {len(entered)} files in {len(folders)} folders:")
    for folder, count in folders.most_common():
        print(f"{count:8}  {folder}")


def print_times(path: Path) -> None:
    print("\nseconds of the last run")
    for line in path.read_text().splitlines():
        kind, seconds, *names = line.split("\t")
        if kind in ("target", "part"):
            print(f"{seconds:>8}  {kind} {' '.join(names)}")


if __name__ == "__main__":
    print_code()
    print_documents()
    print_entered_files()
    if len(sys.argv) > 1:
        print_times(Path(sys.argv[1]))
