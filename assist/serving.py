"""One call from its checked request to its account, whether its client waits for it or leaves."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from assist.calls import BegunCall, Finished, call_begin, call_finish, call_give_back, call_keep_partial
from assist.errors import DayQuotaExceeded, GenerationFailed
from assist.generation import answer_generate
from assist.model.endpoint import Endpoint
from assist.places import Place, model_places
from assist.rate_headers import DayState
from assist.requests import Asked, Caller
from assist.routes import AssistRoute
from assist.spent import Spent
from assist.threads import in_query_thread
from common.errors import DomainError
from common.request_id import current_request_id


class ClientLeft(GenerationFailed):
    """End of a call whose client left: no client gets this response."""

    message = "The client left before the answer came."


class ServedCall:
    """One call. `carry_out` runs to its end whatever becomes of the request (`run_to_end`), as it keeps the account.
    `leave` says that the client went away: the model's call ends, and the place is free.
    """

    def __init__(self, endpoint: Endpoint, route: AssistRoute, asked: Asked, caller: Caller) -> None:
        self._endpoint = endpoint
        self._route = route
        self._asked = asked
        self._caller = caller
        self._spent = Spent()
        self._has_left = False
        self._generating: asyncio.Task[dict[str, Any]] | None = None

    def leave(self) -> None:
        self._has_left = True
        if self._generating is not None:
            self._generating.cancel()

    async def carry_out(self) -> dict[str, Any]:
        """Return the fields of the answer. Raise RateLimitExceeded, DayQuotaExceeded, QuotaExceeded or
        GenerationFailed. Once the client has left nothing is raised, because asyncio would log it.
        """
        try:
            return await self._carry_out()
        except DomainError:
            if self._has_left:
                return {}
            raise

    async def _carry_out(self) -> dict[str, Any]:
        key = self._asked.key
        with model_places().reserved(key.account_id) as place:
            begun = await self._begin()
            began = time.monotonic()
            try:
                fields = await self._generate(place)
            except BaseException:
                await self._give_up(begun)
                raise
            await self._finish(begun, int((time.monotonic() - began) * 1000))
            return fields

    async def _begin(self) -> BegunCall:
        asked = self._asked
        try:
            begun = await in_query_thread(call_begin, key=asked.key, namespace=asked.namespace, tokens=asked.tokens)
        except DayQuotaExceeded as exc:
            self._caller.day = exc.day
            raise
        self._caller.day = begun.day
        return begun

    async def _generate(self, place: Place) -> dict[str, Any]:
        if self._has_left:
            raise ClientLeft
        self._generating = asyncio.create_task(self._take_turn(place))
        try:
            return await self._generating
        except asyncio.CancelledError:
            if self._has_left:
                raise ClientLeft from None
            raise

    async def _take_turn(self, place: Place) -> dict[str, Any]:
        async with model_places().turn(place):
            return await answer_generate(self._endpoint, self._route, self._asked.question, self._spent)

    async def _finish(self, begun: BegunCall, duration_ms: int) -> None:
        data = {
            "request_id": current_request_id(),
            "kind": self._route.name,
            **({"language": self._asked.language} if self._asked.language else {}),
            "tokens": self._spent.tokens,
            "duration_ms": duration_ms,
        }
        finished = Finished(self._route.event, data, self._asked.receiver)
        await in_query_thread(call_finish, begun=begun, spent=self._spent, finished=finished)

    async def _give_up(self, begun: BegunCall) -> None:
        """End a call without an answer. If its client left after the model was asked, it counts; else it is
        given back.
        """
        if self._has_left and self._spent.was_asked:
            await in_query_thread(call_keep_partial, begun=begun, spent=self._spent)
            return
        await in_query_thread(call_give_back, begun.call, begun.namespace)
        day = begun.day
        self._caller.day = DayState(day.day, day.limit, day.used - 1)
