"""Triggers by which the database itself refuses to change or delete an entry of the ledger."""

from __future__ import annotations

from common.append_only import AppendOnly

LEDGER = AppendOnly(
    table="credits_entry",
    refusal="An entry of the ledger is never changed or deleted.",
)
protect_entries = LEDGER.protect
unprotect_entries = LEDGER.unprotect
