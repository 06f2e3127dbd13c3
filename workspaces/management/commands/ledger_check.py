"""`manage.py ledger_check`: whether balances, ledger, spending and metering records agree."""

from __future__ import annotations

from itertools import chain
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from credits.ledger_check import balance_drifts, spending_drifts
from workspaces.charging.check import charge_drifts


class Command(BaseCommand):
    help = "Compute balances from the ledger and charges from metering records; print what differs and exit 1 if any."

    # One transaction: on SQLite nothing is charged during it.
    @transaction.atomic
    def handle(self, *args: Any, **options: Any) -> None:
        drifts = 0
        for sentence in chain(balance_drifts(), spending_drifts(), charge_drifts()):
            self.stdout.write(sentence)
            drifts += 1
        if drifts:
            raise CommandError(f"{drifts} differences.")
        self.stdout.write("The ledger agrees with balances, spending and metering records.")
