"""Planted secrets are nowhere but where they belong: not in logs, admin pages, answers, errors, audit entries, rows."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client

from common.redis import redis_client
from notifications.models import Device
from notifications.sends.dispatcher import PushDispatcher
from notifications.vapid import vapid_private_key
from tests.callers import Caller
from tests.notifications.browsers import PushService
from tests.notifications.google import ACCESS_TOKEN, Google
from tests.notifications.senders import Sender

pytestmark = pytest.mark.django_db(transaction=True)
WORDS = ("planted-endpoint", "planted-good", "planted-other", "planted-title", "planted-body", "planted-data")


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that anything logs, at its finest, the libraries included."""
    text = io.StringIO()
    handler, root = logging.StreamHandler(text), logging.getLogger()
    handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
    former = root.level
    quiet = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    levels = {each: each.level for each in quiet}
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield text
    root.removeHandler(handler)
    root.setLevel(former)
    for each, level in levels.items():
        each.setLevel(level)


def test_planted_words_are_found_nowhere(
    sender: Sender,
    api: Caller,
    staff: Client,
    browsers: PushService,
    phones: Google,
    pushing: Callable[..., AbstractContextManager[PushDispatcher]],
    logged: io.StringIO,
) -> None:
    secrets = plant_devices(api, browsers)
    answers = [api.get("/notifications/devices").content, api.get("/notifications/tokens").content]
    with pushing():
        sent = sender.post({"title": "planted-title", "body": "planted-body", "data": {"k": "planted-data"}})
        answers += [sent.content, sender.post({"title": ["planted-title"]}).content]
    assert sent.json()["devices"] == len(secrets["devices"])
    answers.append(api.post("/notifications/devices", {"device_id": "x", "fcm_token": "planted-other ?"}).content)
    answers += admin_pages(staff)
    words = [*WORDS, *secrets["keys"], sender.secret, vapid_private_key(), ACCESS_TOKEN]
    for place, text in {
        "answers": b"\n".join(answers).decode(),
        "log": logged.getvalue(),
        "rows": stored_text(),
        "Redis": str([*redis_client().scan_iter()]),
    }.items():
        assert [word for word in words if word in text] == [], place


def plant_devices(api: Caller, browsers: PushService) -> dict[str, list[str]]:
    """Devices that are sent to, refuse, fail and hang up, registered as users do."""
    keys = []
    tokens = ["planted-good", "unregistered-planted-other", "broken-planted-other", "thirdparty-planted-other"]
    for number, token in enumerate(tokens):
        body = {"device_id": f"p{number}", "platform": "ios", "fcm_token": token}
        assert api.post("/notifications/devices", body).status_code == 201
    for answer in ("201", "410", "500", "429", "418"):
        subscriber = browsers.subscriber(f"planted-endpoint-{answer}", answer)
        keys += list(subscriber.subscription["keys"].values())
        body = {"device_id": f"w{answer}", "platform": "web", "web_push": subscriber.subscription}
        assert api.post("/notifications/devices", body).status_code == 201
    return {"keys": keys, "devices": list(Device.objects.values_list("device_id", flat=True))}


def admin_pages(staff: Client) -> list[bytes]:
    """The lists of this app, and the page of each row."""
    pages = []
    for model in apps.get_app_config("notifications").get_models():
        if model.__name__ in ("ProviderPause", "VapidKey"):
            continue
        base = f"/admin/notifications/{model.__name__.lower()}/"
        urls = [base, f"{base}?q=planted", *(f"{base}{row.pk}/change/" for row in model._default_manager.all())]
        for url in urls:
            answer = staff.get(url)
            assert answer.status_code == 200, url
            pages.append(answer.content.replace(b'value="planted"', b"").replace(b"q=planted", b""))
    return pages


def stored_text() -> str:
    """All columns of all rows as the database has them."""
    found = []
    with connection.cursor() as cursor:
        for model in apps.get_models():
            cursor.execute(f"SELECT * FROM {connection.ops.quote_name(model._meta.db_table)}")
            found.append(str(cursor.fetchall()))
    return "\n".join(found)
