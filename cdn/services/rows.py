"""Rows of files as they are now, locked: the account first, then the file, then the pools, then credits."""

from __future__ import annotations

from typing import Any

from accounts.errors import AccountGone
from accounts.models import Account
from accounts.services import account_lock
from cdn.errors import FileNotKept
from cdn.models import File, Permit
from cdn.pools import Owner


def owner_of(file: File) -> Owner:
    """Whose pools count it."""
    return Owner(file.account_id, file.namespace_id)


def lock_file(file_id: str, account_id: str) -> tuple[Account, File]:
    """To the end of the transaction, with the account as it is now. Raises FileNotKept."""
    try:
        account = account_lock(Account(pk=account_id))
    except AccountGone:
        # Uploads have no credentials that could be missing.
        raise FileNotKept from None
    # With the namespace, which may be deleted after the commit and is shown.
    rows = File.objects.select_for_update(of=("self",)).select_related("namespace")
    found = rows.filter(pk=file_id, purge=False).first()
    if found is None:
        raise FileNotKept
    return account, found


def account_of(file_id: str) -> str:
    """The id of the account of a file. Raises FileNotKept."""
    found = File.objects.filter(pk=file_id).values_list("account_id", flat=True).first()
    if found is None:
        raise FileNotKept
    return found


def permit_of(file: File) -> Permit | None:
    """None once it was pruned."""
    return Permit.objects.filter(pk=file.pk).first()


def write_file(file: File, **columns: Any) -> None:
    """Write columns of a locked row."""
    File.objects.filter(pk=file.pk).update(**columns)
    for name, value in columns.items():
        setattr(file, name, value)
