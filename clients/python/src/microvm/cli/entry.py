"""The program `ws`. Imports nothing of the extra before it is known to be installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec

NEEDED = ("typer", "rich", "websockets")


def main() -> None:
    """Run the command line and exit with its code. Without the extra: one sentence, and code 1."""
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
