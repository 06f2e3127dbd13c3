"""Celery: `worker` (queue `default`), one `vmhost` for each machine (queue `host.<name>`), and beat.

A task is a wake-up that carries a row's id; the row is the truth. So every task may be lost, duplicated or late.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
app = Celery("platform")
app.config_from_object("config.celery_settings")
app.autodiscover_tasks()


@setup_logging.connect
def _use_django_logging(**kwargs: Any) -> None:
    from logging.config import dictConfig

    from django.conf import settings

    dictConfig(settings.LOGGING)
