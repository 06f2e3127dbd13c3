"""`manage.py image_pull REFERENCE [--root DIR]`: have an image ready on this host before it is asked for."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from vmbackend.backend import image_store
from vmbackend.errors import BackendError
from vmbackend.images.store import ImageSettings, ImageStore

BAR_WIDTH = 30


class Command(BaseCommand):
    help = "Pull an image into the host's cache, with the platform's registry settings."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("reference", help="python:3.12, registry.example.com/name@sha256:..., localhost/x")
        parser.add_argument("--root", type=Path, help="the image directory (default: the platform's)")
        parser.add_argument("--timeout", type=float, default=1800.0, help="seconds (1800)")

    def handle(self, *args: Any, **options: Any) -> None:
        store = image_store()
        if options["root"]:
            settings = getattr(store, "settings", None) or ImageSettings()
            root = options["root"]
            store = ImageStore(root, replace(settings, local_store=root / "oci"))
        deadline = time.monotonic() + options["timeout"]
        try:
            image = store.ensure(options["reference"], progress=self.progress, deadline=deadline)
        except BackendError as error:
            raise CommandError(error.sentence) from error
        self.stdout.write(f"\n{image.digest}\n{image.rootfs} ({image.size_bytes >> 20} MiB)")

    def progress(self, percent: int, words: str) -> None:
        bar = "#" * (BAR_WIDTH * percent // 100)
        lead = "\r\x1b[K" if self.stdout.isatty() else "\n"
        self.stdout.write(f"{lead}[{bar:<{BAR_WIDTH}}] {percent:3d}% {words}", ending="")
        self.stdout.flush()
