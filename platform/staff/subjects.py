"""Subjects: whom an action of staff concerns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NAMES = ("account_id", "namespace_id", "workspace_id")


@dataclass(frozen=True, slots=True)
class Subject:
    """Ids, empty if there is none. With a workspace, its activity has the reason; else that of the namespace."""

    account_id: str = ""
    namespace_id: str = ""
    workspace_id: str = ""

    @classmethod
    def of(cls, row: Any) -> Subject:
        """Return the subject by the columns of these names that the row has."""
        return cls(**{name: str(getattr(row, name, "") or "") for name in NAMES})
