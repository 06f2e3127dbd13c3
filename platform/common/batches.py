"""Long lists in parts: a statement that names many values takes long to be read and planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def batched(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield parts of `size` items, the last one of what is left."""
    return (items[start : start + size] for start in range(0, len(items), size))
