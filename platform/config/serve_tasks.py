"""The command that runs a worker or the scheduler: `python -m config.serve_tasks (worker | beat) [OPTION...]`, with
Celery's options.

As Celery's own command, without its banner and without what its other commands load (a shell, monitors): a seventh of
what a worker loads.
"""

from __future__ import annotations

import sys

from celery.bin.base import CLIContext
from celery.bin.beat import beat
from celery.bin.worker import worker

from config.celery import app

COMMANDS = {"worker": worker, "beat": beat}


def main(arguments: list[str]) -> None:
    """Run until SIGTERM or SIGINT. Never returns."""
    name, *options = arguments or [""]
    if name not in COMMANDS:
        raise SystemExit("usage: python -m config.serve_tasks (worker | beat) [OPTION...]")
    # With these a worker executes Python again at SIGHUP.
    sys.argv = ["-m", "config.serve_tasks", *arguments]
    context = CLIContext(app=app, no_color=False, workdir=None, quiet=True)
    # Options may come from the variables that Celery's own command reads.
    COMMANDS[name].main(options, prog_name=name, obj=context, auto_envvar_prefix=f"CELERY_{name.upper()}")


if __name__ == "__main__":
    main(sys.argv[1:])
