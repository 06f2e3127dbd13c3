"""python -m cdn.inspection <order in JSON>

The file is the standard input; the answer is one line `ready` and one of JSON.
"""

from __future__ import annotations

import sys

from cdn.inspection.limits import set_limits
from cdn.inspection.messages import DAMAGED, READY, Findings, InspectionOrder, found_dumped, order_of


def main() -> None:
    """Inspect the file. Exits with 0 for every file that was read, even a damaged one."""
    set_limits()
    order = order_of(sys.argv[1])
    try:
        found = _inspect(order)
    except MemoryError:
        found = Findings(order.content_type, reason=DAMAGED)
    _write_line(found_dumped(found))


def _inspect(order: InspectionOrder) -> Findings:
    """Return the findings. Each library is loaded only for its own types: the other one takes memory and time."""
    if order.content_type.startswith("image/"):
        from cdn.inspection.pictures import inspect_picture

        _write_line(READY)
        return inspect_picture(order)
    from cdn.inspection.containers import inspect_container

    _write_line(READY)
    return inspect_container(order)


def _write_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
