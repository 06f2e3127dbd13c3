"""Runs a worker or the scheduler: `python -m config.serve_tasks (worker | beat) [OPTION...]`, with Celery's options.

As Celery's own command, without its banner and without what its other commands load (a shell, monitors): a seventh of
what a worker loads.
"""

from __future__ import annotations

import sys

import click
from celery.bin.base import CLIContext
from celery.bin.beat import beat
from celery.bin.worker import worker

from config.celery import app


def main(arguments: list[str]) -> None:
    """Run until SIGTERM or SIGINT. Never returns."""
    # With these a worker executes Python again at SIGHUP.
    sys.argv = ["-m", "config.serve_tasks", *arguments]
    context = CLIContext(app=app, no_color=False, workdir=None, quiet=True)
    commands = click.Group(commands={"worker": worker, "beat": beat})
    commands.main(arguments, prog_name="serve_tasks", obj=context, auto_envvar_prefix="CELERY")


if __name__ == "__main__":
    main(sys.argv[1:])
