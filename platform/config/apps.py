"""The project's own app: it brings the system checks."""

import codecs

from django.apps import AppConfig


class PlatformConfig(AppConfig):
    name = "config"
    label = "platform_config"

    def ready(self) -> None:
        from config import checks  # noqa: F401

        # Loaded with the first use of each, which a process that can open no file answered with 500: that of Django's
        # log of errors, and that of request bodies.
        for codec in ("unicode_escape", "utf-8-sig"):
            codecs.lookup(codec)
