"""How much room a permit reserves: the file, and an upper bound of its variants.

A variant reserves 64 KiB and four bytes for each of its pixels, at most 64 KiB and twice the file; where one side is
not given, it counts as long as the other. What turns out larger is asked for at publication, and refused without room.
"""

from __future__ import annotations

from typing import Any

VARIANT_OVERHEAD = 64 * 1024
BYTES_PER_PIXEL = 4
FILE_FACTOR = 2


def reserved_for(size: int, variants: dict[str, dict[str, Any]]) -> int:
    """Of a file and its variants."""
    return size + sum(_variant_bound(size, each) for each in variants.values())


def _variant_bound(size: int, variant: dict[str, Any]) -> int:
    sides: list[int] = [variant[side] for side in ("width", "height") if side in variant]
    most = FILE_FACTOR * size
    if sides:
        most = min(most, BYTES_PER_PIXEL * sides[0] * sides[-1])
    return VARIANT_OVERHEAD + most
