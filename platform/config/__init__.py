"""The project: settings from the environment, routes, entry points of the processes. Imported as `config`."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
