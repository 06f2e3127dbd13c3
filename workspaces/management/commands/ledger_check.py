"""`manage.py ledger_check`: whether balances, ledger, spending, sums and metering records agree."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from workspaces.charging.check import ledger_check_by_hand


class Command(BaseCommand):
    help = "Compute balances from the ledger and charges from metering records; print each difference; exit 1 if any."

    def handle(self, *args: Any, **options: Any) -> None:
        drifts = ledger_check_by_hand(self.stdout.write)
        if drifts:
            raise CommandError(f"{drifts} differences.")
        self.stdout.write("The ledger agrees with balances, spending and metering records.")
