"""Run of `manage.py cdn_check`."""

from __future__ import annotations

from collections.abc import Callable

from django.db.models import Count, Sum

from cdn.models import Permit, Pool
from cdn.services.counter_check import counters_check
from cdn.services.storage_check import storage_check
from cdn.states import FileStatus, PoolKind


def cdn_check(say: Callable[[str], object]) -> int:
    """Say the differences and the counted sums. Return the number of differences."""
    differences = list(counters_check())
    missing, removed = storage_check()
    for sentence in (*differences, *missing):
        say(sentence)
    sums = Pool.objects.filter(kind=PoolKind.ACCOUNT).aggregate(
        stored=Sum("stored_bytes", default=0),
        trashed=Sum("trashed_bytes", default=0),
        reserved=Sum("reserved_bytes", default=0),
    )
    say(f"stored {sums['stored']}, in the trash {sums['trashed']}, reserved {sums['reserved']} bytes")
    refused = Permit.objects.filter(file__status=FileStatus.REJECTED)
    given = refused.aggregate(bytes=Sum("reserved_bytes", default=0), files=Count("pk"))
    say(f"given back {given['bytes']} bytes of {given['files']} files that were refused and are still shown")
    if removed:
        say(f"removed bytes and links that belonged to no row: {removed}")
    return len(differences) + len(missing)
