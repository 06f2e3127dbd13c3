"""`manage.py image_build --root DIR`: build the default image into the local store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from vmbackend.errors import BackendError
from vmbackend.images.build import DEFAULT_NAME, build_default_image


class Command(BaseCommand):
    help = "Build the default workspace image from Debian packages into the local store (DIR/oci)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--root", type=Path, required=True, help="the image directory")
        parser.add_argument("--name", default=DEFAULT_NAME, help=f"the image's name ({DEFAULT_NAME})")
        parser.add_argument("--rebuild", action="store_true", help="rebuild with the newest Debian packages")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            digest = build_default_image(
                options["root"] / "oci", options["name"], self.progress, rebuild=options["rebuild"]
            )
        except BackendError as error:
            raise CommandError(error.message) from error
        except OSError as error:  # a full disk, a folder that is not there for this user
            raise CommandError(f"The image could not be built: {error}") from error
        self.stdout.write(f"{options['name']} is {digest}")

    def progress(self, percent: int, words: str) -> None:
        self.stdout.write(f"{percent:3d}% {words}")
        self.stdout.flush()
