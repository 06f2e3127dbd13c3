"""One pass of the lifecycle sweep over 100,000 workspaces of which none is due, beside one over 100.

PYTHONPATH=.:platform .venv/bin/python -m benchmarks.sweep [--rows 100000]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta

from benchmarks.common import show
from benchmarks.databases import use_own_server

BAR = "one query; the time is that of finding nothing in four indexes"


def prepare(state: str) -> None:
    use_own_server()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    os.environ.update(
        PLATFORM_STATE=state,
        PLATFORM_SECRET_KEY="a-key-for-the-benchmark-only-0123456789",
        PLATFORM_VM_BACKEND="fake",
        PLATFORM_ROLE="worker",
    )
    import django

    django.setup()


def add_rows(name: str, count: int) -> None:
    """Half of them temporary with a TTL in the future, half with an idle time in the future."""
    from django.db import connection
    from django.utils import timezone

    from benchmarks.rows import fill
    from workspaces.models import Workspace

    fill(name, count)
    later = timezone.now() + timedelta(hours=1)
    rows = Workspace.objects.filter(account__name=name).order_by("pk")
    first = list(rows.values_list("pk", flat=True)[: count // 2])
    for start in range(0, len(first), 500):
        Workspace.objects.filter(pk__in=first[start : start + 500]).update(ttl_expires_at=later)
    rows.filter(ttl_expires_at=None).update(idle_due_at=later)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")


def passes(count: int) -> Sequence[float]:
    """Milliseconds of each pass."""
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from workspaces.host.sweep import sweep_due

    taken = []
    for _ in range(count):
        with CaptureQueriesContext(connection) as asked:
            begun = time.perf_counter()
            done = sweep_due()
            taken.append((time.perf_counter() - begun) * 1000)
        if done or len(asked) != 1:
            raise SystemExit(f"{done} done, {len(asked)} queries: nothing was due")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--count", type=int, default=50)
    options = parser.parse_args()
    state = tempfile.mkdtemp(prefix="mvmb-")
    try:
        prepare(state)
        add_rows("few", 100)
        few = passes(options.count)
        add_rows("many", options.rows)
        show(f"sweep over {options.rows}", passes(options.count), few, unit="ms", bar=BAR)
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
