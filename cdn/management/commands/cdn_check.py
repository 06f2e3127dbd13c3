"""`manage.py cdn_check`: whether counters, rows and stored bytes of the CDN agree."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from cdn.services.check_run import cdn_check
from cdn.storage.errors import StorageUnavailable


class Command(BaseCommand):
    help = (
        "Compare the CDN's counters with its rows, and the rows with the stored bytes. Remove bytes that belong to no "
        "row after PLATFORM_CDN_ORPHAN_GRACE_SECONDS. Print the differences and exit 1 if there are any."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            differences = cdn_check(self.stdout.write)
        except StorageUnavailable as exc:
            raise CommandError(exc.message) from exc
        if differences:
            raise CommandError(f"{differences} differences.")
        self.stdout.write("Counters, rows and stored bytes agree.")
