"""Present rows of files, locked: the account first, then the file, then the pools, then credits."""

from __future__ import annotations

from typing import Any

from accounts.errors import AccountGone
from accounts.models import Account
from accounts.services import account_lock
from cdn.errors import FileNotKept
from cdn.models import File, Permit
from cdn.pools import Owner


def owner_of(file: File) -> Owner:
    """Return the owner of the pools that count a file."""
    return Owner(file.account_id, file.namespace_id)


def lock_file(file_id: str, account_id: str) -> tuple[Account, File]:
    """Return the present account and file, locked to the end of the transaction. Raise FileNotKept."""
    try:
        account = account_lock(Account(pk=account_id))
    except AccountGone:
        # Uploads have no credentials that could be rejected.
        raise FileNotKept from None
    # The namespace is read along: it is shown, and may be deleted after the commit.
    rows = File.objects.select_for_update(of=("self",)).select_related("namespace")
    found = rows.filter(pk=file_id, purge=False).first()
    if found is None:
        raise FileNotKept
    return account, found


def account_of(file_id: str) -> str:
    """Return the id of the account of a file. Raise FileNotKept."""
    found = File.objects.filter(pk=file_id).values_list("account_id", flat=True).first()
    if found is None:
        raise FileNotKept
    return found


def permit_of(file: File) -> Permit | None:
    """Return the permit; None once it was pruned."""
    return Permit.objects.filter(pk=file.pk).first()


def write_file(file: File, **columns: Any) -> None:
    """Write columns of a locked row."""
    File.objects.filter(pk=file.pk).update(**columns)
    for name, value in columns.items():
        setattr(file, name, value)
