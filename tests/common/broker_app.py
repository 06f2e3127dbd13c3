"""A Celery app with the platform's settings: `celery -A tests.common.broker_app worker` is one instance's worker."""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

app = Celery("broker-test", set_as_current=False)
app.config_from_object("config.celery_settings")


@app.task(name="append")
def append(text: str) -> None:
    """Adds a line to the file of this worker."""
    with Path(os.environ["DONE_FILE"]).open("a") as file:
        file.write(f"{text}\n")
