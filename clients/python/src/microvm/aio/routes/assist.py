"""Code assistance, with an API key.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.aio.group import LONG, AsyncGroup
from microvm.types.assist import (
    AssistDebugRequest,
    AssistDebugResponse,
    AssistGenerateRequest,
    AssistGenerateResponse,
    AssistOptimizeRequest,
    AssistOptimizeResponse,
)


class AsyncAssistRoutes(AsyncGroup):
    """Code assistance, with an API key."""

    async def generate(self, *, api_key: str, **body: Unpack[AssistGenerateRequest]) -> AssistGenerateResponse:
        """Write code for a prompt."""
        answer: AssistGenerateResponse = await self._call(
            "POST", "/v1/blurs/generate", body=body, timeout=LONG, bearer=api_key
        )
        return answer

    async def debug(self, *, api_key: str, **body: Unpack[AssistDebugRequest]) -> AssistDebugResponse:
        """Find what is wrong with code, and correct it. Its event is `generation.complete` with `kind` `debug`."""
        answer: AssistDebugResponse = await self._call(
            "POST", "/v1/blurs/debug", body=body, timeout=LONG, bearer=api_key
        )
        return answer

    async def optimize(self, *, api_key: str, **body: Unpack[AssistOptimizeRequest]) -> AssistOptimizeResponse:
        """Make code faster, smaller to deliver, or easier on the database. Its event is `optimization.complete`."""
        answer: AssistOptimizeResponse = await self._call(
            "POST", "/v1/blurs/optimize", body=body, timeout=LONG, bearer=api_key
        )
        return answer
