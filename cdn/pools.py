"""Counters of stored, trashed, reserved and published bytes. There is one row for an account, for a namespace, and for
an account's files without one.

Every change is one UPDATE of the namespace's (or personal) pool and one of the account's, always in this order, with
the account's row locked (`accounts.services.account_lock`). A change that needs room is conditional: it changes nothing
if a limit would be passed.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone

from cdn.errors import CdnQuotaExceeded
from cdn.models import Pool
from cdn.policy import EffectivePolicy, PoolLimits
from cdn.states import PoolKind

VARIANT_OVERHEAD = 64 * 1024
BYTES_PER_PIXEL = 4
FILE_FACTOR = 2


def reserved_for(size: int, variants: dict[str, dict[str, Any]]) -> int:
    """Return the bytes that a permit reserves: the file, and an upper bound of its variants.

    A variant reserves 64 KiB and four bytes for each of its pixels, at most 64 KiB and twice the file. A side that is
    not given counts as long as the other. If the variants become larger, publication asks for more, and is refused
    without room.
    """
    return size + sum(_variant_bound(size, each) for each in variants.values())


def _variant_bound(size: int, variant: dict[str, Any]) -> int:
    sides: list[int] = [variant[side] for side in ("width", "height") if side in variant]
    most = FILE_FACTOR * size
    if sides:
        most = min(most, BYTES_PER_PIXEL * sides[0] * sides[-1])
    return VARIANT_OVERHEAD + most


_TABLE = Pool._meta.db_table
# Above every limit and sum.
_UNLIMITED = 1 << 62
_MONTHLY = ("month_bytes", "month_files")


@dataclass(frozen=True, slots=True)
class Change:
    """Numbers that are added to the columns; negative ones are subtracted."""

    stored_bytes: int = 0
    stored_files: int = 0
    trashed_bytes: int = 0
    trashed_files: int = 0
    reserved_bytes: int = 0
    reserved_files: int = 0
    rejected_files: int = 0
    month_bytes: int = 0
    month_files: int = 0
    open_permits: int = 0


COLUMNS = tuple(column.name for column in fields(Change))


@dataclass(frozen=True, slots=True)
class Room:
    """Room that a change needs within the limits.

    `with_reserved`: reservations of others count, too. `requested`: for the message. `moment`: the time whose month
    counts; None means now.
    """

    requested: int
    requested_files: int = 0
    with_reserved: bool = True
    monthly: bool = True
    uploads: bool = False
    moment: datetime | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of the pools that change."""

    account_id: str
    namespace_id: str | None

    @property
    def key(self) -> str:
        return self.namespace_id or personal_key(self.account_id)

    @property
    def scope(self) -> str:
        return PoolKind.NAMESPACE if self.namespace_id else PoolKind.PERSONAL


def personal_key(account_id: str) -> str:
    return f"personal_{account_id}"


def month_of(moment: datetime | None = None) -> str:
    """Return the key of a month in UTC; keys sort as text."""
    return (moment or timezone.now()).strftime("%Y-%m")


def change_pools(owner: Owner, change: Change) -> None:
    """Add to both pools, whatever the limits."""
    _change_pool(owner, owner.key, change)
    _change_pool(owner, owner.account_id, change)


def change_owner_pool(owner: Owner, change: Change) -> None:
    """Add to the namespace's (or personal) pool alone, for files that move within the account."""
    _change_pool(owner, owner.key, change)


def claim_pools(owner: Owner, change: Change, policy: EffectivePolicy, room: Room) -> None:
    """Add to both pools if both have room.

    Raise CdnQuotaExceeded: the caller's transaction must be rolled back, because the first pool may have been changed.
    """
    room = replace(room, moment=room.moment or timezone.now())
    _claim_pool(owner, owner.scope, change, policy.pool, room)
    _claim_pool(owner, PoolKind.ACCOUNT, change, policy.account, room)


def make_pools(owner: Owner) -> None:
    """Create the missing rows, with counters of zero."""
    _insert(owner, owner.key)
    _insert(owner, owner.account_id)


def room_refused(owner: Owner, policy: EffectivePolicy, room: Room, *, of_account: bool) -> CdnQuotaExceeded:
    """Return the error of a pool without room: the account's if `of_account`, else the other one."""
    if of_account or policy.pool is None:
        return _quota_exceeded(owner.account_id, PoolKind.ACCOUNT, policy.account, room)
    return _quota_exceeded(owner.key, owner.scope, policy.pool, room)


def pool_of(key: str) -> Pool:
    """Return the present counters, those of this month included; zeros if nothing was counted yet."""
    found = Pool.objects.filter(pk=key).first() or Pool(owner=key)
    return rolled(found)


def rolled(pool: Pool) -> Pool:
    """Return the pool with the counters of the present month. A clock that was set back leaves the later month."""
    if pool.month < month_of():
        pool.month, pool.month_bytes, pool.month_files = month_of(), 0, 0
    return pool


def _change_pool(owner: Owner, key: str, change: Change) -> None:
    month = month_of()
    if not _update(key, change, month, "", []):
        _insert(owner, key)
        _update(key, change, month, "", [])


def _claim_pool(owner: Owner, scope: str, change: Change, limits: PoolLimits | None, room: Room) -> None:
    key = owner.account_id if scope == PoolKind.ACCOUNT else owner.key
    if limits is None:
        _change_pool(owner, key, change)
        return
    where, params = _conditions(change, limits, room)
    month = month_of(room.moment)
    if _update(key, change, month, where, params):
        return
    _insert(owner, key)
    if not _update(key, change, month, where, params):
        raise _quota_exceeded(key, scope, limits, room)


def _update(key: str, change: Change, month: str, where: str, params: list[Any]) -> bool:
    sets, values = [], []
    for name in COLUMNS:
        delta = getattr(change, name)
        if name in _MONTHLY:
            sets.append(f"{name} = CASE WHEN month < %s THEN 0 ELSE {name} END + %s")
            values += [month, delta]
        elif delta:
            sets.append(f"{name} = {name} + %s")
            values.append(delta)
    sets.append("month = CASE WHEN month < %s THEN %s ELSE month END")
    sql = f"UPDATE {_TABLE} SET {', '.join(sets)} WHERE owner = %s{where}"  # noqa: S608 - names of columns
    with connection.cursor() as cursor:
        cursor.execute(sql, [*values, month, month, key, *params])
        return bool(cursor.rowcount)


def _conditions(change: Change, limits: PoolLimits, room: Room) -> tuple[str, list[Any]]:
    """Return SQL of the conditions on the row before the change, and its parameters. Each sum is that after the
    change.
    """
    reserved = " + reserved_bytes" if room.with_reserved else ""
    files = " + reserved_files" if room.with_reserved else ""
    after = change if room.with_reserved else replace(change, reserved_bytes=0, reserved_files=0)
    checks = [
        (
            f"stored_bytes + trashed_bytes{reserved}",
            after.stored_bytes + after.trashed_bytes + after.reserved_bytes,
            limits.max_bytes[1],
        ),
        (
            f"stored_files + trashed_files{files}",
            after.stored_files + after.trashed_files + after.reserved_files,
            limits.max_files,
        ),
    ]
    where, params = "", []
    if room.monthly and limits.monthly_bytes[1] is not None:
        where = f" AND CASE WHEN month < %s THEN 0 ELSE month_bytes END{reserved} + %s <= %s"
        params = [month_of(room.moment), after.month_bytes + after.reserved_bytes, limits.monthly_bytes[1]]
    for sums, delta, limit in checks:
        if limit is not None:
            where += f" AND {sums} + %s <= %s"
            params += [delta, limit]
    return where, params


def _insert(owner: Owner, key: str) -> None:
    """Create a pool of zeros, unless there is one."""
    is_account = key == owner.account_id
    made = Pool(
        owner=key,
        kind=PoolKind.ACCOUNT if is_account else owner.scope,
        account_id=owner.account_id,
        namespace_id=None if is_account else owner.namespace_id,
        month=month_of(),
    )
    Pool.objects.bulk_create([made], ignore_conflicts=True)


def _quota_exceeded(key: str, scope: str, limits: PoolLimits, room: Room) -> CdnQuotaExceeded:
    """Return the error of the first limit that is passed."""
    pool = pool_of(key)
    held = pool.reserved_bytes if room.with_reserved else 0
    held_files = pool.reserved_files if room.with_reserved else 0
    stored, files = pool.stored_bytes + pool.trashed_bytes, pool.stored_files + pool.trashed_files
    checks = [
        (*limits.max_bytes, stored, held, room.requested),
        ("maxFiles", limits.max_files, files, held_files, room.requested_files),
        ("maxConcurrentUploads", limits.max_uploads if room.uploads else None, pool.open_permits, 0, 1),
        (*limits.monthly_bytes, pool.month_bytes, held, room.requested),
    ]
    passed = next((row for row in checks if row[1] is not None and row[2] + row[3] + row[4] > row[1]), checks[0])
    name, limit, used, reserved, requested = passed
    return CdnQuotaExceeded(
        f"{name} of the {scope} is {limit}: {used} used, {reserved} reserved, {requested} requested.",
        details={
            "limit": limit,
            "used": used,
            "reserved": reserved,
            "requested": requested,
            "scope": scope,
            "name": name,
        },
    )
