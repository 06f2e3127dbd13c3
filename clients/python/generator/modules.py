"""Every module of the client that is generated from the API's description, by its path."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from clients.python.generator.description import Description
from clients.python.generator.methods import module_text
from clients.python.generator.synchronous import PACKAGE, write_synchronous_client
from clients.python.generator.table import read_table
from clients.python.generator.types import Types


def generated_modules(document: dict[str, Any]) -> dict[Path, str]:
    """Path below the package -> text. Raises MissingInDescription where the table and the API differ."""
    groups = read_table()
    types = Types(Description(document), groups)
    routes = {f"{group.name}.py": module_text(group, types) for group in groups}
    made = {Path("aio", "routes", name): text for name, text in routes.items()}
    made |= {Path("types", f"{group.name}.py"): text for group in groups if (text := types.module(group))}
    return _formatted(made)


def write_modules(modules: dict[Path, str]) -> None:
    """Write the files, remove those of groups that are no more, and write the synchronous client from these."""
    for folder in ("types", "aio/routes"):
        for path in (PACKAGE / folder).glob("*.py"):
            if path.name != "__init__.py" and path.relative_to(PACKAGE) not in modules:
                path.unlink()
    for path, text in modules.items():
        (PACKAGE / path).parent.mkdir(parents=True, exist_ok=True)
        (PACKAGE / path).write_text(text)
    write_synchronous_client()


def _formatted(modules: dict[Path, str]) -> dict[Path, str]:
    """The texts as the project's ruff sorts and formats them. Raises CalledProcessError where one is no Python."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copy(PACKAGE.parents[3] / "pyproject.toml", root)
        source = root / "clients" / "python" / "src" / "microvm"
        shutil.copytree(PACKAGE, source)  # imports are sorted by what there is
        for path, text in modules.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_text(text)
        for options in (
            ["check", "--quiet", "--fix-only", "--select", "I,F401,UP028", "--unsafe-fixes"],
            ["format", "--quiet"],
        ):
            subprocess.run([sys.executable, "-m", "ruff", *options, "."], cwd=root, check=True)
        return {path: (source / path).read_text() for path in modules}
