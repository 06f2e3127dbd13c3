"""`manage.py guest_kit --dir DIR`: build the guest kit unless it is up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from vmbackend.errors import BackendError
from vmbackend.guest.kit import build_kit


class Command(BaseCommand):
    help = "Build the guest kit (kernel and initramfs of every machine) from Debian packages."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dir", type=Path, required=True, help="the kit directory")
        parser.add_argument("--refresh", action="store_true", help="download the newest Debian packages")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            kit = build_kit(options["dir"], self.progress, refresh=options["refresh"])
        except BackendError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"guest kit {kit.version} in {kit.kernel.parent}")

    def progress(self, percent: int, words: str) -> None:
        self.stdout.write(f"{percent:3d}% {words}")
        self.stdout.flush()
