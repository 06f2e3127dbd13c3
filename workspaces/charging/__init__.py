"""Charging credits for metered usage, and checking that the ledger, the records and the rates agree."""
