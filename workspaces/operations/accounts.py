"""The account of an operation or a public port, by which staff list them, in a column of its own.

It is written with the row. A process of an earlier version writes none: while several hosts of one database are
upgraded one after the other, such rows come after the migration that has filled in those before.
"""

from __future__ import annotations

from typing import Any

from django.db.models import OuterRef, Subquery

from workspaces.models import Operation, PublicPort, Workspace

# Rows that one statement locks.
CHUNK = 1000


def missing_accounts_write() -> int:
    """Write the account of rows without one; returns how many had none. A part that is written stays written."""
    return sum(_write(model) for model in (Operation, PublicPort))


def _write(model: type[Operation | PublicPort]) -> int:
    account = Subquery(Workspace.objects.filter(pk=OuterRef("workspace_id")).values("account_id")[:1])
    rows = model._default_manager.filter(account_id="")
    # Found once: without an end it would go on for as long as an earlier version adds rows.
    newest = rows.order_by("-pk").values_list("pk", flat=True).first()
    written = 0
    while newest is not None:
        keys: list[Any] = list(rows.filter(pk__lte=newest).values_list("pk", flat=True)[:CHUNK])
        if not keys:
            break
        written += rows.filter(pk__in=keys).update(account_id=account)
    return written
