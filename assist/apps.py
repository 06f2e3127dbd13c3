from __future__ import annotations

from django.apps import AppConfig


class AssistConfig(AppConfig):
    name = "assist"
