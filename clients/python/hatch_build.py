"""Writes the synchronous client before a package is built, also where it is installed as editable."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SynchronousClient(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        written_by = run_path(str(root / "generator" / "synchronous.py"))
        written_by["write_synchronous_client"](root / "src" / "microvm")
        build_data["artifacts"].append("src/microvm/sync/**/*.py")  # else left out, as it is not tracked
