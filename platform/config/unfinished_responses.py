"""ASGI middleware of streams: a response that ends early is a line of the log, without a traceback.

A guest that goes in the middle of a file, or a right that ends, can be had as often as a caller likes. The server
closes the connection of a response that is not complete, by which the client sees it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from common.errors import DomainError
from common.streaming_body import Receive, Send
from vmbackend.errors import BackendError

logger = logging.getLogger(__name__)

Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


class UnfinishedResponses:
    """Other errors are faults of the platform, which the server logs."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        try:
            await self._application(scope, receive, send)
        except (BackendError, DomainError) as error:
            logger.info("a response ends early: %s", error)


class SaidOnce(logging.Filter):
    """A filter that leaves out what the server says of such a response afterwards."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != "ASGI callable returned without completing response."
