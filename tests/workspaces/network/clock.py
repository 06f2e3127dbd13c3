"""A second that stands, and what the edge finds in it."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import pytest

SECOND = 1_000_000_000


class Clock:
    """The clock of cached answers; stands until it is set."""

    now = SECOND

    def __call__(self) -> int:
        return self.now

    @classmethod
    def set_up(cls, monkeypatch: pytest.MonkeyPatch) -> Self:
        made = cls()
        for name in ("edge.route_cache.this_second", "workspaces.edge_auth.fast_path.this_second"):
            monkeypatch.setattr(name, made)
        return made


def found(folder: Path) -> list[str]:
    """The answers that the edge finds, as `second/label/address`."""
    return sorted(str(place.relative_to(folder)) for place in folder.glob("*/[!.]*/*"))
