from __future__ import annotations

from django.apps import AppConfig


class CdnConfig(AppConfig):
    name = "cdn"
