"""The program `ws`. Imports nothing of the extra before it is known to be installed."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

NEEDED = ("typer", "rich", "websockets")


def main() -> None:
    """Run the command line and exit with its code. Without the extra: one sentence, and code 1."""
    _open_closed_streams()
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        names = ", ".join(missing)
        sys.stderr.write(
            f"ws: the command line is not installed ({names} missing). Install it with: pip install 'microvm[cli]'\n"
        )
        raise SystemExit(1)
    try:
        from microvm.cli.app import run_command_line

        run_command_line()
    except KeyboardInterrupt:  # while it loads
        raise SystemExit(130) from None


def _open_closed_streams() -> None:
    """Standard streams that the caller closed: else the next file or connection would take their place.

    Reading ends at once, what goes to stdout is an error, and what goes to stderr is lost.
    """
    for number, name, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
