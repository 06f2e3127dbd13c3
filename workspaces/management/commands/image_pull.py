"""`manage.py image_pull [REFERENCE ...] [--entry NAME ...]`: have images on this host before they are asked for."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from rich.console import Console

from vmbackend.backend import image_store
from vmbackend.errors import BackendError
from vmbackend.images.store import ImageSettings, ImageStore
from vmbackend.management import progress
from workspaces.images import selectors


class Command(BaseCommand):
    help = "Pull images into the host's cache, with the platform's registry settings."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "reference", nargs="*", help="python:3.12, registry.example.com/name@sha256:..., localhost/x"
        )
        parser.add_argument(
            "--entry", action="append", default=[], metavar="NAME", help="an entry of the catalog, by id or preset"
        )
        parser.add_argument("--root", type=Path, help="the image directory (default: the platform's)")
        parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for each image (1800)")

    def handle(self, *args: Any, **options: Any) -> None:
        references = [*options["reference"], *map(_image_of, options["entry"])]
        if not references:
            raise CommandError("Name an image, or an entry of the catalog with --entry.")
        store, ready, failures = _store(options["root"]), [], []
        console = Console() if self.stdout.isatty() else None
        with progress.show_progress(self.stdout.write, console) as begin:
            for reference in dict.fromkeys(references):
                try:
                    ready.append(_pull(store, reference, begin(reference), options["timeout"]))
                except BackendError as error:
                    failures.append(f"{reference}: {error.message}")
        for line in ready:
            self.stdout.write(line)
        if failures:
            raise CommandError("\n".join(failures))


def _pull(store: ImageStore, reference: str, report: progress.Report, seconds: float) -> str:
    image = store.ensure(reference, progress=report, deadline=time.monotonic() + seconds)
    return f"{reference} is {image.digest}: {image.rootfs} ({image.size_bytes >> 20} MiB)"


def _image_of(name: str) -> str:
    entry = selectors.by_name(name)
    if entry is None:
        raise CommandError(f"The catalog has no entry and no preset {name}.")
    return entry.image


def _store(root: Path | None) -> ImageStore:
    store = image_store()
    if root is None:
        return store
    settings = getattr(store, "settings", None) or ImageSettings()
    return ImageStore(root, replace(settings, local_store=root / "oci"))
