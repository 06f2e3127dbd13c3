"""The project's own app: it brings the system checks."""

import codecs

from django.apps import AppConfig


class PlatformConfig(AppConfig):
    name = "config"
    label = "platform_config"

    def ready(self) -> None:
        from config import checks  # noqa: F401

        # Django's log of errors loads it with the first of them: a process that can open no file then answered nothing.
        codecs.lookup("unicode_escape")
