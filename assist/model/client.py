"""One question to the model, over httpx. The caller limits the time. A question that is cancelled ends its connection,
which tells the server that the answer is no longer wanted.
"""

from __future__ import annotations

import asyncio
import weakref
from datetime import UTC, datetime
from typing import Any

import httpx

from assist.model.endpoint import Endpoint
from assist.model.errors import AnswerBroken, ModelError, ModelUnreachable, ServerRefused
from assist.model.reading import Answer, AnswerReader
from webhooks.schedule import retry_after_seconds

OK = 200
# The step, as the client's transport reports it, at which the last byte of the question is sent.
SENT = ".send_request_body.complete"


async def ask_model(endpoint: Endpoint, body: dict[str, Any], answer: Answer) -> None:
    """Ask, and fill `answer` while the model's answer comes. So the caller knows what came, however this call ends:
    also if it gives up after the question was sent and before the first byte of the answer.

    Raise ModelError. A server that fails before its answer begins counts as not asked.
    """
    try:
        await _exchange(endpoint, body, answer)
    except ModelError:
        answer.is_asked = False
        raise


async def _exchange(endpoint: Endpoint, body: dict[str, Any], answer: Answer) -> None:
    async def trace(step: str, _: Any) -> None:
        if step.endswith(SENT):
            answer.is_asked = True

    url, headers = endpoint.completions_url, endpoint.headers()
    extensions = {"trace": trace}
    try:
        async with _client(endpoint).stream("POST", url, json=body, headers=headers, extensions=extensions) as response:
            await _read(response, answer)
    except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
        raise ModelUnreachable("The model's server cannot be reached.") from exc
    except httpx.HTTPError as exc:
        raise AnswerBroken("The connection to the model's server ended early.") from exc


async def _read(response: httpx.Response, answer: Answer) -> None:
    if response.status_code != OK:
        asked = retry_after_seconds(response.headers.get("retry-after"), datetime.now(UTC))
        raise ServerRefused(response.status_code, asked)
    if response.headers.get("content-encoding", "identity") != "identity":
        raise AnswerBroken("The model's server compressed its answer, which it was asked not to do.")
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    reader = AnswerReader(answer, is_stream=kind != "application/json")
    async for data in response.aiter_raw():
        reader.feed(data)
        if reader.is_complete:
            return
    reader.end()


def _client(endpoint: Endpoint) -> httpx.AsyncClient:
    """Return the running loop's client. All calls share it, because making a client reads the system's certificates.

    No connection is kept: if the server closed it at the moment of the next question, that question would fail.
    """
    loop = asyncio.get_running_loop()
    found = _clients.get(loop)
    if found is None:
        found = _clients[loop] = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=endpoint.connect_seconds),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=0),
            follow_redirects=False,
            # Neither proxies nor .netrc of the environment: settings alone choose the server.
            trust_env=False,
        )
    return found


_clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = weakref.WeakKeyDictionary()
