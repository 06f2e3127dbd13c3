"""`manage.py guest_kernel --dir DIR`: compile the custom guest kernel and build the kit with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from vmbackend.errors import BackendError
from vmbackend.guest.kit import build_kernel, build_kit


class Command(BaseCommand):
    help = "Build the custom guest kernel (takes minutes), then the guest kit with it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dir", type=Path, required=True, help="the kit directory")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            build_kernel(options["dir"], self.progress)
            kit = build_kit(options["dir"], self.progress)
        except BackendError as error:
            raise CommandError(error.message) from error
        self.stdout.write(f"guest kit {kit.version} in {kit.kernel.parent}")

    def progress(self, percent: int, words: str) -> None:
        self.stdout.write(f"{percent:3d}% {words}")
        self.stdout.flush()
