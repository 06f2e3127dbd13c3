"""Permits a second beside bare `UPDATE ... RETURNING` and commit on one hot row, of 16 threads each.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.cdn_permits [--seconds 10]

All permits are of one account and one namespace. The baseline is what a counter takes at least: one statement of the
driver, committed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from benchmarks.charge import ROUNDS, THREADS, bare_connection, rate_of_threads, show_ratios
from benchmarks.sweep import prepare

BAR = 0.2
NEW = {"filename": "cat.png", "size": 1000, "content_type": "image/png", "tags": ["cats"]}


def make_namespace() -> Any:
    """With room for every permit, and with limits of its own, as a checked quota is the longer way."""
    from accounts.services import account_create
    from cdn.models import PlanLimits
    from cdn.services.limits import namespace_quota_set
    from namespaces.models import Namespace

    account, _ = account_create(name="bench", plan="scale")
    PlanLimits.objects.filter(pk="scale").update(max_bytes=2**53 - 1, monthly_bytes=2**53 - 1, policy={})
    namespace = Namespace.objects.select_related("account").get(account=account)
    namespace_quota_set(namespace=namespace, changes={"cdn_max_bytes": 2**52}, actor="bench")
    return namespace


def permits_of(namespace: Any) -> Callable[[], Any]:
    from cdn.services.permits import NewFile, permit_create

    return lambda: permit_create(account=namespace.account, new=NewFile(namespace=namespace, **NEW), actor="bench")


def bare_update(made: Any, key: str) -> Callable[[], Any]:
    statement = "UPDATE cdn_pool SET month_files = month_files + 1 WHERE owner = %s RETURNING month_files"
    cursor = made.cursor()
    return lambda: cursor.execute(statement, (key,)).fetchall()


def measure(options: argparse.Namespace) -> None:
    namespace = make_namespace()
    permits_of(namespace)()
    slice_of = options.seconds / ROUNDS

    def permits() -> float:
        return rate_of_threads(lambda: permits_of(namespace), slice_of)

    def bare() -> float:
        return rate_of_threads(lambda: bare_update(bare_connection(), namespace.pk), slice_of)

    show_ratios(f"permits, {THREADS} threads", permits, bare, BAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10, help="of each baseline")
    options = parser.parse_args()
    state = tempfile.mkdtemp(prefix="mvmb-")
    try:
        prepare(state)
        measure(options)
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
