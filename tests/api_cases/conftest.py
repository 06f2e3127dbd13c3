"""A host for the cases and the examples."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from celery import current_app
from django.conf import LazySettings
from django.db import connection

import pages.tasks  # noqa: F401 registers the tasks
from config.env import Env
from notifications.sends import requests
from tests.assist.conftest import configured
from tests.assist.model_server import serving_model
from tests.fakehost import FakeHost
from tests.hosts.rows import close_network


@pytest.fixture
def host(vmhost: FakeHost, settings: LazySettings, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A vmhost, and a model for code assistance. The workers of the CDN and of notifications are not there: uploads
    stay at 202, and nothing is sent.
    """
    send = current_app.send_task

    def send_task(name: str, *args: Any, **options: Any) -> None:
        if not name.startswith(("cdn.", "notifications.")):
            send(name, *args, **options)

    monkeypatch.setattr(current_app, "send_task", send_task)
    monkeypatch.setattr(requests, "WAIT_SECONDS", 0.1)  # for the worker that is not there
    # As in the api: without it, each request opens a connection.
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    # Fields that other tests had changed, and put back, would count as given: a machine that joins is told of those.
    settings.ENV = Env.from_environment(os.environ)
    with serving_model() as made:
        waits = {"cdn_upload_wait_seconds": 0.1, "deploy_wait_seconds": 5, "power_seconds": 60}
        asked = {"assist_url": made.url, "assist_model": "m", "assist_key": "k", "assist_calls_per_minute": 10_000}
        # No name server is asked: domains are connected before their records are seen.
        configured(settings, domain_verification=False, **waits, **asked)
        yield
    close_network()
