"""A streams process for tests: Django's own ASGI handler with one route, whose source counts.

uvicorn tests.common.sse.app:application
"""

from __future__ import annotations

import asyncio
import os

import django
from django.http import HttpRequest
from django.http.response import HttpResponseBase

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
if __name__ == "tests.common.sse.app" and os.environ.get("COUNTING_APP"):
    django.setup()

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.urls import path

from common.sse.leaders import Source
from common.sse.replay import Channel, ReplayBuffer
from common.sse.response import event_stream, last_event_id
from common.sse.runtime import Reader
from tests.common.sse.reading import none_revoked

EVERY_SECONDS = 0.05


def counting(channel: Channel) -> Source:
    """1, 2, 3, ...: with each number the process that wrote it."""

    async def run(replay: ReplayBuffer) -> None:
        position = await replay.position(channel)
        while True:
            number = int(position or 0) + 1
            events = [("message", f'{{"n":{number},"pid":{os.getpid()}}}')]
            await replay.append(channel, events, expected=position, position=str(number))
            position = str(number)
            await asyncio.sleep(EVERY_SECONDS)

    return run


async def count(request: HttpRequest, name: str) -> HttpResponseBase:
    channel = Channel(name)
    return event_stream(Reader(channel, counting(channel), "t", none_revoked, after=last_event_id(request), tail=1000))


urlpatterns = [path("count/<str:name>", count)]

if os.environ.get("COUNTING_APP"):
    settings.ROOT_URLCONF = "tests.common.sse.app"
    application = get_asgi_application()
