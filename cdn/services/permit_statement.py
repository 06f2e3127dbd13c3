"""Permit by one statement of the database (`cdn.permit_function`)."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from django.db import DatabaseError, connection, transaction
from django.db.models import JSONField, Model
from django.utils import timezone

from cdn import pools
from cdn.models import File, Permit
from cdn.permit_function import NO_ACCOUNT_ROOM, NO_HOLD, NO_NAMESPACE, NO_POOL_ROOM
from cdn.policy import EffectivePolicy, PoolLimits
from cdn.pools import Owner
from cdn.services.payments import Held
from credits.amounts import stored_amount
from credits.holds import hold_entry_key

_REFUSALS = {NO_NAMESPACE, NO_POOL_ROOM, NO_ACCOUNT_ROOM, NO_HOLD}
_SQL = f"SELECT cdn_permit_take({', '.join(['%s'] * 5)}, %s::bigint[], %s::bigint[], {', '.join(['%s'] * 8)})"


def permit_take(file: File, permit: Permit, policy: EffectivePolicy, held: Held) -> str | None:
    """Reserve and hold, if there is room for all of it.

    Return the code of the missing part; nothing was done then.
    """
    owner = Owner(file.account_id, file.namespace_id)
    parameters = [
        *(owner.account_id, owner.namespace_id, owner.key, pools.month_of(), permit.reserved_bytes),
        *(_limits(policy.pool), _limits(policy.account), _row(file), _row(permit)),
        *(held.payer.pk, stored_amount(held.amount), held.key, hold_entry_key(held.key), held.until, timezone.now()),
    ]
    try:
        with _one_statement(), connection.cursor() as cursor:
            cursor.execute(_SQL, parameters)
    except DatabaseError as exc:
        code = getattr(exc.__cause__, "sqlstate", None)
        if code not in _REFUSALS:
            raise
        return str(code)
    file._state.adding = permit._state.adding = False
    return None


def _one_statement() -> AbstractContextManager[Any]:
    """Return a context. Inside of a transaction it is a savepoint, so that a failure leaves the transaction as
    it was.
    """
    return transaction.atomic() if connection.in_atomic_block else nullcontext()


def _limits(limits: PoolLimits | None) -> str:
    """Return the limits as the text of an array: the driver takes longer to find the type of an array."""
    if limits is None:
        return "{NULL,NULL,NULL,NULL}"
    given = [limits.max_bytes[1], limits.monthly_bytes[1], limits.max_files, limits.max_uploads]
    return f"{{{','.join('NULL' if each is None else str(each) for each in given)}}}"


def _row(instance: Model) -> str:
    """Return the columns of an instance as JSON."""
    values = {}
    for field in instance._meta.concrete_fields:
        value = getattr(instance, field.attname)
        values[field.column] = value if value is None or isinstance(field, JSONField) else field.get_prep_value(value)
    return json.dumps(values, default=str)
