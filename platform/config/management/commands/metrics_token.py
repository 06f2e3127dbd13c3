"""`manage.py metrics_token`: prints the bearer token of `/metrics`."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from config.metrics_token import metrics_token


class Command(BaseCommand):
    help = "Print the bearer token of /metrics, for Prometheus's configuration."

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(metrics_token(settings.SECRET_KEY))
