"""Answers of servers on a machine's loopback, as the holder of a token gets them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from django.conf import settings
from django.http import HttpRequest, StreamingHttpResponse

from common.connections import release_thread
from common.streaming_body import BodyPieces
from common.trailers import add_trailers
from common.watched_bodies import granted_chunks, while_granted
from edge.addresses import runtime_address
from vmbackend.guest.sources import pulled_from
from workspaces.data_plane.guest import OpenGuest
from workspaces.runtime.proxy.exchange import AnswerHead, AnswerPart, AnswerTrailers, ProxiedRequest, exchange
from workspaces.runtime.proxy.heads import client_headers, client_trailers


class ProxiedResponse(StreamingHttpResponse):
    """An answer with its own headers, in which a name may come several times."""

    def __init__(self, head: AnswerHead, chunks: AsyncIterator[bytes]) -> None:
        super().__init__(chunks, status=head.status)
        del self["Content-Type"]
        self._more: list[tuple[str, str]] = []
        for name, value in client_headers(head.headers, status=head.status, keeps_cookies=keeps_cookies()):
            self._add(name.decode("latin-1"), value.decode("latin-1"))

    def items(self):  # type: ignore[no-untyped-def]  # as that of its base
        """Return all headers, for the server."""
        return [*super().items(), *self._more]

    def _add(self, name: str, value: str) -> None:
        if name in self:
            self._more.append((name, value))
        else:
            self[name] = value


def keeps_cookies() -> bool:
    """Return whether an answer may set cookies: its host is none of the platform's pages."""
    return settings.ENV.runtime_proxy_cookies and bool(runtime_address(settings.ENV.runtime_url).host)


async def open_answer(guest: OpenGuest, request: ProxiedRequest, sent: HttpRequest) -> ProxiedResponse:
    """Return the answer of a server in the guest, once it has begun; the body of the request that was sent goes on
    meanwhile.

    It ends with the token and with the machine, which counts as in use until then. Raise what `exchange` and
    `OpenGuest.stream` raise.
    """
    loop, body = asyncio.get_running_loop(), BodyPieces(sent)
    parts = guest.stream(lambda session: exchange(session, request, pulled_from(loop, body)))
    release_thread()  # it may take as long as the server likes
    try:
        if not request.has_body:
            await anext(body, None)  # the end of an empty one; from there on it is noticed if the client leaves
        async with while_granted(guest.grant):
            head = await anext(parts)
    except BaseException:
        await parts.aclose()
        body.close()
        raise
    assert isinstance(head, AnswerHead)  # noqa: S101  # the first part
    return ProxiedResponse(head, granted_chunks(_chunks(parts, body, sent), guest.grant))


async def _chunks(parts: AsyncGenerator[AnswerPart, None], body: BodyPieces, sent: HttpRequest) -> AsyncIterator[bytes]:
    release_thread()  # the first place that runs after the last middleware
    try:
        async with aclosing(parts):
            async for part in parts:
                if isinstance(part, bytes):
                    yield part
                elif isinstance(part, AnswerTrailers):
                    add_trailers(sent, client_trailers(part.headers))
    finally:
        body.close()
