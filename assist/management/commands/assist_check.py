"""`manage.py assist_check`: ask the configured model one question."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from assist.check import check_model
from assist.errors import GenerationFailed


class Command(BaseCommand):
    help = (
        "Asks the configured model for one small function, and says how long it took and whether its answer is valid."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            found = check_model()
        except GenerationFailed as exc:
            raise CommandError(exc.message) from exc
        counted = "counted by length, as the server reports none" if found.is_counted_by_length else "as reported"
        self.stdout.write(f"format     {settings.ENV.assist_format}")
        self.stdout.write(f"time       {found.seconds:.2f} s, {found.questions} question(s)")
        self.stdout.write(f"tokens     {found.tokens} ({counted})")
        if found.error:
            raise CommandError(found.error)
        first = "at once" if found.questions == 1 else "when it was asked again"
        self.stdout.write(f"schema     held {first}")
