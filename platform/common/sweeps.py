"""Code that sweeps over rows share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet


def rows_in_turn(rows: QuerySet[Any], *, batch: int, seconds: float) -> Iterator[Any]:
    """Yield each row once, by its key, `batch` of them read at a time, until so many seconds have passed.

    Rows that a caller cannot do anything about now keep no later ones from it; the next call begins with the first.
    """
    end = time.monotonic() + seconds
    found = list(rows.order_by("pk")[:batch])
    while found:
        yield from found
        if time.monotonic() >= end:
            return
        found = list(rows.filter(pk__gt=found[-1].pk).order_by("pk")[:batch])
