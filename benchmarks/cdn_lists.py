"""`GET /cdn/files` of an account with 100,000 files beside one of an account with 100, through the api's views.

    PYTHONPATH=.:platform .venv/bin/python -m benchmarks.cdn_lists [--files 100000] [--requests 200]

A quarter of the files is in the trash, a third in one namespace. Requests of both accounts take turns.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from datetime import timedelta
from typing import Any

from benchmarks.common import show
from benchmarks.sweep import prepare

BAR = 1.3
PATHS = ("/cdn/files", "/cdn/files?namespace=default", "/cdn/files?scope=personal", "/cdn/files?status=trashed",
         "/cdn/files?status=active&limit=100", "/cdn/namespaces", "/cdn/usage")  # fmt: skip
SHA = "ab" * 32


def fill(name: str, count: int) -> Any:
    """An account with so many files, and its counters; a caller."""
    from django.test import Client
    from django.utils import timezone

    from accounts.services import account_create
    from cdn.models import File, Variant
    from cdn.pools import Change, Owner, change_pools
    from namespaces.models import Namespace
    from tests.callers import Caller

    account, made = account_create(name=name, plan="scale")
    namespace = Namespace.objects.get(account=account)
    now = timezone.now()

    def row(number: int) -> File:
        trashed = number % 4 == 0
        return File(
            account=account,
            namespace=namespace if number % 3 == 0 else None,
            status="trashed" if trashed else "active",
            filename=f"file {number}.png",
            kind="image",
            content_type="image/png",
            extension="png",
            size=1000,
            footprint=1200,
            sha256=SHA,
            tags=["a", "b"],
            metadata={"n": number},
            created_at=now - timedelta(seconds=number),
            published_at=now,
            trashed_at=now if trashed else None,
        )

    for start in range(0, count, 1000):
        rows = File.objects.bulk_create([row(number) for number in range(start, min(count, start + 1000))])
        Variant.objects.bulk_create(
            Variant(file=each, index=0, name="t", width=1, height=1, size=200, sha256=SHA, content_type="image/webp",
                    extension="webp") for each in rows
        )  # fmt: skip
        for place in (namespace.pk, None):
            mine = [each for each in rows if each.namespace_id == place]
            gone = sum(each.status == "trashed" for each in mine)
            kept = len(mine) - gone
            change = Change(kept * 1200, kept, gone * 1200, gone)
            change_pools(Owner(account.pk, place), change)
    return Caller(Client(), account, made.credential.client_id, made.secret)


def milliseconds(caller: Any, path: str) -> float:
    begun = time.perf_counter()
    answer = caller.get(path)
    taken = (time.perf_counter() - begun) * 1000
    if answer.status_code != 200:
        raise SystemExit(f"{path}: {answer.status_code}")
    return taken


def measure(options: argparse.Namespace) -> None:
    from django.conf import settings
    from django.db import connection

    settings.ALLOWED_HOSTS.append("testserver")
    few, many = fill("few", 100), fill("many", options.files)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    print(f"  {options.files} files beside 100, {options.requests} requests each")
    for path in PATHS:
        for caller in (few, many):
            milliseconds(caller, path)
        taken = [(milliseconds(many, path), milliseconds(few, path)) for _ in range(options.requests)]
        show(path, [ours for ours, _ in taken], [bare for _, bare in taken], unit="ms", bar=f"at most {BAR}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=200)
    options = parser.parse_args()
    state = tempfile.mkdtemp(prefix="mvmb-")
    try:
        prepare(state)
        measure(options)
    finally:
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()
