"""docs/adding-a-resource.md, followed to the letter in a temporary copy of the tree.

The page's code blocks are the app: a block under the name of a file is written to that file, a diff is applied to it, a
block of shell is run. Then everything that a new app must pass runs there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

# Four minutes of a processor for a page that changes with the tools of its reader: one run of three has it.
pytestmark = pytest.mark.campaign
ROOT = Path(settings.ROOT)
RECIPE = ROOT / "docs" / "adding-a-resource.md"
# A file's name on a line of its own, and the blocks under it.
BLOCK = re.compile(r"^`(?P<file>[\w./-]+)`$|^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
APP = "widgets"
OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "-m", "not vm and not host")
# What was compiled is kept, without files that are being written: copies have the times of the originals.
LEFT_OUT = (".git", ".venv", "var", "*.pyc.*", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis")


def blocks() -> Iterator[tuple[str, str, str]]:
    """File, kind and text of each code block."""
    file = ""
    for found in BLOCK.finditer(RECIPE.read_text()):
        if found["file"]:
            file = found["file"]
        else:
            yield file, found["kind"], found["text"]


def apply_diff(path: Path, diff: str) -> None:
    """Replace the lines with ` ` or `-` by those with ` ` or `+`. The former must stand in the file exactly once."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] in " -")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    text = path.read_text()
    assert text.count(before) == 1, f"{path.name} has these lines {text.count(before)} times:\n{before}"
    path.write_text(text.replace(before, after))


def run(tree: Path, *command: str) -> str:
    """The output. Fails with it where the command fails."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PLATFORM_", "PYTEST_", "COV_", "MYPY_"))
    }
    env |= {"PYTHONPATH": f"{tree}{os.pathsep}{tree / 'platform'}"}
    done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-6000:]}{done.stderr[-3000:]}"
    return done.stdout


def tool(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


def use_packages_of_this_run(tree: Path) -> None:
    """No command of the Makefile installs anything here: .venv is the one of this run."""
    (tree / ".venv").symlink_to(ROOT / ".venv")
    for script in ("packages.sh", "venv.sh", "npm.sh"):
        (tree / "scripts" / script).write_text("#!/bin/sh\n")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree in which the recipe was followed."""
    made = tmp_path_factory.mktemp("recipe") / "tree"
    shutil.copytree(ROOT, made, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
    use_packages_of_this_run(made)
    for file, kind, text in blocks():
        path = made / file
        if kind == "diff":
            apply_diff(path, text)
        elif kind in ("python", "json"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        elif kind == "sh":
            run(made, "sh", "-ec", text)
    return made


def test_the_migration_is_made_and_complete(tree: Path) -> None:
    assert [path.name for path in (tree / APP / "migrations").glob("0*.py")] == ["0001_initial.py"]


def test_it_is_formatted_and_passes_the_linter(tree: Path) -> None:
    places = [APP, f"tests/{APP}", "platform/config/app_list.py"]
    run(tree, tool("ruff"), "check", *places)
    run(tree, tool("ruff"), "format", "--check", *places)


def test_it_passes_the_type_checker(tree: Path) -> None:
    cache = ROOT / os.environ.get("MYPY_CACHE_DIR", ".mypy_cache")
    if cache.exists():  # what has not changed is not checked again
        shutil.copytree(cache, tree / ".mypy_cache", dirs_exist_ok=True)
    run(tree, tool("mypy"), APP)


def test_it_keeps_the_layers(tree: Path) -> None:
    assert " 0 broken" in run(tree, tool("lint-imports"), "--no-cache", "--no-logo")


def test_its_operations_have_examples(tree: Path) -> None:
    run(tree, sys.executable, "-m", "pytest", *OPTIONS, "-k", f"every or {APP}", "tests/api_cases/test_examples.py")


def test_it_passes_the_route_walk_and_its_own_tests(tree: Path) -> None:
    walk = ["tests/test_registration.py", "tests/test_routes.py", "tests/test_requests.py", "tests/test_layout.py"]
    walk += ["tests/accounts/test_admin.py", "tests/test_names.py", "tests/console/test_roles.py"]
    chosen = f"{APP} or Widget or entry or left_out or share or migrations or openapi or system_checks"
    chosen += " or test_names or role"
    output = run(tree, sys.executable, "-m", "pytest", *OPTIONS, "-k", chosen, f"tests/{APP}", *walk)
    assert " passed" in output
