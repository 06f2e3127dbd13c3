"""python -m cdn.inspection <order in JSON>

The file is the standard input; the answer is one line `ready` and one of JSON.
"""

from __future__ import annotations

import sys

from cdn.inspection.limits import limits_set
from cdn.inspection.messages import DAMAGED, READY, Findings, InspectionOrder, found_dumped, order_of


def main() -> None:
    """Exits with 0 for every file that was looked at, damaged ones, too."""
    limits_set()
    order = order_of(sys.argv[1])
    try:
        found = _inspect(order)
    except MemoryError:
        found = Findings(order.content_type, reason=DAMAGED)
    _write_line(found_dumped(found))


def _inspect(order: InspectionOrder) -> Findings:
    """Each library is loaded for its own types only: the other one takes memory and time."""
    if order.content_type.startswith("image/"):
        from cdn.inspection.pictures import picture_inspect

        _write_line(READY)
        return picture_inspect(order)
    from cdn.inspection.containers import container_inspect

    _write_line(READY)
    return container_inspect(order)


def _write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
