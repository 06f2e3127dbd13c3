"""What a process does that is killed (tests/killed_process.py)."""

from __future__ import annotations

from pages.deploys import worker


def deploy_next() -> None:
    """As the worker does when it is notified of the queued deploy."""
    worker.deploy_run()
