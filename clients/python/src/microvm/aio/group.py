"""The base of all groups of methods."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import uuid4

from microvm.aio.transport import AsyncTransport
from microvm.errors import NotFound
from microvm.retries import Sending

LONG = 660.0  # seconds: such methods answer when an operation has finished


class AsyncGroup:
    """Every method raises ApiError for an error of the service and ConnectionFailed where no answer came."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        part: str = "",
        timeout: float | None = None,
        again: bool = False,
        keyed: bool = False,
        bearer: str = "",
    ) -> Any:
        """The answer, or a field of it. `again`: a second request has no second effect; `keyed`: nor has it, as each
        carries the body's idempotency key, or one that is made here.
        """
        transport = self._transport.with_bearer(bearer) if bearer else self._transport
        headers = {}
        if keyed:
            body = dict(body or {})
            headers["Idempotency-Key"] = body.pop("idempotency_key", None) or str(uuid4())
        sending = Sending(method, path, query or {}, body, headers, timeout, is_idempotent=again)
        answer = await transport.call(sending)
        return _field(answer, part) if part else answer

    async def _delete(self, path: str, *, query: Mapping[str, Any] | None = None, timeout: float | None = None) -> None:
        """A removal. What is gone at the second attempt was removed by the first one, whose answer was lost."""
        try:
            await self._call("DELETE", path, query=query, timeout=timeout)
        except NotFound as error:
            if not error.after_lost_answer:
                raise

    async def _pages(self, path: str, rows: str, query: Mapping[str, Any], size: int) -> AsyncIterator[Any]:
        """Rows of a list with `page` and `limit`."""
        page = 1
        while found := _field(await self._call("GET", path, query={**query, "page": page, "limit": size}), rows):
            for row in found:
                yield row
            if len(found) < size:
                return
            page += 1

    async def _offsets(self, path: str, rows: str, query: Mapping[str, Any], size: int) -> AsyncIterator[Any]:
        """Rows of a list with `offset` and `limit`."""
        offset = 0
        while found := _field(await self._call("GET", path, query={**query, "offset": offset, "limit": size}), rows):
            for row in found:
                yield row
            if len(found) < size:
                return
            offset += size

    async def _cursors(self, path: str, rows: str, query: Mapping[str, Any], size: int) -> AsyncIterator[Any]:
        """Rows of a list with `cursor` and `limit`; a page may have fewer rows than asked for."""
        cursor: str | None = None
        while True:
            answer = await self._call("GET", path, query={**query, "cursor": cursor, "limit": size})
            for row in _field(answer, rows):
                yield row
            cursor = answer.get("next_cursor")
            if cursor is None:
                return


def _field(answer: Any, path: str) -> Any:
    for name in path.split("."):
        answer = answer[name]
    return answer
