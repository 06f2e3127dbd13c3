"""Moving the files of a namespace that is deleted (`namespaces.hooks`)."""

from __future__ import annotations

from django.db import transaction

from cdn.audit import record_event
from cdn.models import File, Pool
from cdn.pools import COLUMNS, Change, Owner, change_owner_pool, rolled
from namespaces.models import Namespace


@transaction.atomic
def files_move(source: Namespace, target: Namespace, actor: str) -> int:
    """Move files, with their permits and counters, in the caller's transaction, which has locked the account. Return
    how many.

    The account's pool does not change. The target may then have more than its limit, and gets no new permits until it
    has less.
    """
    moved = File.objects.filter(namespace=source).update(namespace=target)
    pool = Pool.objects.filter(pk=source.pk).first()
    if pool is not None:
        change = Change(**{name: getattr(rolled(pool), name) for name in COLUMNS})
        change_owner_pool(Owner(target.account_id, target.pk), change)
        pool.delete()
    if moved:
        detail = f"{moved} files from {source.slug} to {target.slug}."
        record_event(source.account_id, "moved", detail, actor=actor)
    return moved
