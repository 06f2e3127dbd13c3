"""python -m cdn.inspection <order in JSON>

The file is the standard input; the answer is one line of JSON.
"""

from __future__ import annotations

import sys

from cdn.inspection.limits import limits_set
from cdn.inspection.messages import DAMAGED, Found, InspectionOrder, order_of


def main() -> None:
    """Exits with 0 for every file that was looked at, damaged ones, too."""
    limits_set()
    order = order_of(sys.argv[1])
    try:
        found = _inspect(order)
    except MemoryError:
        found = Found(order.content_type, reason=DAMAGED)
    sys.stdout.write(found.dumped() + "\n")
    sys.stdout.flush()


def _inspect(order: InspectionOrder) -> Found:
    """Each library is loaded for its own types only: the other one takes memory and time."""
    if order.content_type.startswith("image/"):
        from cdn.inspection.pictures import picture_inspect

        return picture_inspect(order)
    from cdn.inspection.containers import container_inspect

    return container_inspect(order)


if __name__ == "__main__":
    main()
