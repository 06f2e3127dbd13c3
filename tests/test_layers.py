"""The layers and the import graph: no circle between modules or packages of any app, type-only imports included."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import grimp
import pytest
from django.conf import settings

from tests.circles import circles

ROOT = Path(settings.ROOT)
Graph = dict[str, set[str]]


def import_graph() -> Graph:
    """Module -> modules that it imports, of all packages of the project but migrations."""
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
    built = grimp.build_graph(*packages, exclude_type_checking_imports=False, cache_dir=None)
    modules = {module for module in built.modules if ".migrations" not in module}
    return {module: built.find_modules_directly_imported_by(module) & modules for module in modules}


def siblings(graph: Graph) -> dict[str, Graph]:
    """For each package: child -> children that it imports, where a child stands for everything below it."""
    found: dict[str, Graph] = {}
    for module, imported in graph.items():
        for other in imported:
            ours, theirs = module.split("."), other.split(".")
            shared = next((place for place, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
            if shared is not None:  # neither is a package that holds the other
                package = ".".join(ours[:shared])
                edges = found.setdefault(package, {})
                edges.setdefault(ours[shared], set()).add(theirs[shared])
                edges.setdefault(theirs[shared], set())
    return found


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert siblings({"p.a.x": {"p.b"}, "p.b": {"p.a.y"}, "p.a.y": set()}) == {"p": {"a": {"b"}, "b": {"a"}}}


def test_no_import_circle_between_modules_or_packages(capsys: pytest.CaptureFixture[str]) -> None:
    graph = import_graph()
    between_modules = circles(graph)
    between_packages = {package: found for package, edges in siblings(graph).items() if (found := circles(edges))}
    count = len(between_modules) + sum(map(len, between_packages.values()))
    with capsys.disabled():
        sys.stdout.write(f"\nimport circles: {count} ({len(graph)} modules, {sum(map(len, graph.values()))} imports)\n")
    assert between_modules == []
    assert between_packages == {}


def test_the_contracts_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}"}
    ran = subprocess.run([tool, "--no-cache", "--no-logo"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 broken" in ran.stdout
