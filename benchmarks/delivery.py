"""What the benchmarks of webhooks and of notifications share: a receiver in a process of its own, and a database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.databases import use_own_server

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def receiver(module: str) -> Iterator[str]:
    """The address of a receiver, which prints its port; it is killed at the end."""
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def prepare(state: str, base: str, role: str) -> None:
    """Django as in the process `role`, with a database of its own; `base` may be sent to."""
    use_own_server()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ.update(
        PLATFORM_STATE=state,
        PLATFORM_SECRET_KEY="a-key-for-the-benchmark-only-0123456789",
        PLATFORM_VM_BACKEND="fake",
        PLATFORM_ROLE=role,
        PLATFORM_LOG_LEVEL="ERROR",
        PLATFORM_PRIVATE_RECEIVERS=base.removeprefix("http://"),
        # No broker: nothing is notified by it here.
        PLATFORM_REDIS_URL=f"unix://{state}/none.sock",
    )
    import django

    django.setup()
