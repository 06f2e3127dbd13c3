"""Runs the confined process for one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cdn.inspection.messages import Found, InspectionOrder


def inspection_run(file: int, order: InspectionOrder, outputs: list[Path], tick: Callable[[], None]) -> Found:
    """Look at an open file; variants go to `outputs`. `tick` is called about every second, and may raise."""
    raise NotImplementedError
