"""The project's own app: it brings the system checks."""

import codecs

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin import autodiscover
from django.contrib.admin.apps import SimpleAdminConfig


class PlatformConfig(AppConfig):
    name = "config"
    label = "platform_config"

    def ready(self) -> None:
        from config import checks  # noqa: F401

        # Loaded with the first use of each, which a process that can open no file answered with 500: that of Django's
        # log of errors, and that of request bodies.
        for codec in ("unicode_escape", "utf-8-sig"):
            codecs.lookup(codec)


class AdminConfig(SimpleAdminConfig):
    """Django's admin. Workers show none, and do not load the admin modules of the apps: a fifth of what they load."""

    def ready(self) -> None:
        super().ready()
        if settings.SHOWS_ADMIN:
            autodiscover()
