"""Limits of a pool, by name, so that a refusal can say which one it was."""

from __future__ import annotations

from dataclasses import dataclass

Named = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """`max_bytes` and `monthly_bytes` with the name of the field that they come from; None: no limit."""

    max_bytes: Named
    monthly_bytes: Named
    max_files: int | None = None
    max_uploads: int | None = None


def smaller(one: Named, other: Named) -> Named:
    """The first where both are the same."""
    if one[1] is None or other[1] is None:
        return other if one[1] is None else one
    return one if one[1] <= other[1] else other
