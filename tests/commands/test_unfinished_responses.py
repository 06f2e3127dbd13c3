"""A response whose source fails in the middle, in the real server: the client sees that it is incomplete, and the log
has a line.
"""

from __future__ import annotations

import asyncio
import logging
import logging.config
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest
import uvicorn
from django.conf import settings
from django.http import HttpRequest, StreamingHttpResponse
from django.test import override_settings
from django.urls import path
from uvicorn.server import ServerState

from common.errors import Unauthorized
from common.streaming_body import StreamingHandler
from config.request_protocol import RequestProtocol
from config.unfinished_responses import SaidOnce, UnfinishedResponses
from vmbackend.errors import GuestUnreachable

pytestmark = pytest.mark.django_db(transaction=True)

PIECE = b"x" * 1000


async def broken(request: HttpRequest, error: Exception) -> StreamingHttpResponse:
    async def body() -> AsyncIterator[bytes]:
        yield PIECE
        raise error

    return StreamingHttpResponse(body(), headers={"Content-Length": "5000"})


@pytest.mark.parametrize("error", [GuestUnreachable("The guest is gone."), Unauthorized("The token has ended.")])
def test_a_body_that_fails_in_the_middle_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    urls = ModuleType("broken_urls")
    urls.urlpatterns = [path("broken", broken, {"error": error})]  # type: ignore[attr-defined]

    async def fetched() -> bytes:
        config = uvicorn.Config(
            UnfinishedResponses(StreamingHandler()), log_config=None, access_log=False, lifespan="off"
        )
        config.load()
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: RequestProtocol(config, ServerState(), {}), str(tmp_path / "s")
        )
        async with server:
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            writer.write(b"GET /broken HTTP/1.1\r\nHost: testserver\r\n\r\n")
            async with asyncio.timeout(60):
                got = await reader.read()  # the server closes
            writer.close()
        return got

    log, only = logging.getLogger("uvicorn.error"), SaidOnce()
    assert settings.LOGGING["loggers"]["uvicorn.error"] == {"filters": ["unfinished"]}
    log.addFilter(only)
    try:
        with caplog.at_level(logging.INFO), override_settings(ROOT_URLCONF=urls, MIDDLEWARE=[]):
            assert asyncio.run(fetched()).endswith(PIECE)
    finally:
        log.removeFilter(only)
    assert [record.getMessage() for record in caplog.records] == [f"a response ends early: {error}"]
    assert not caplog.records[0].exc_info
