"""Code assistance, with an API key.

Written by `make client`.
"""

from __future__ import annotations

from typing import Unpack

from microvm.sync.group import LONG, Group
from microvm.types.assist import (
    AssistDebugRequest,
    AssistDebugResponse,
    AssistGenerateRequest,
    AssistGenerateResponse,
    AssistOptimizeRequest,
    AssistOptimizeResponse,
)


class AssistRoutes(Group):
    """Code assistance, with an API key."""

    def generate(self, *, api_key: str, **body: Unpack[AssistGenerateRequest]) -> AssistGenerateResponse:
        """Write code for a prompt."""
        answer: AssistGenerateResponse = self._call(
            "POST", "/v1/blurs/generate", body=body, timeout=LONG, bearer=api_key
        )
        return answer

    def debug(self, *, api_key: str, **body: Unpack[AssistDebugRequest]) -> AssistDebugResponse:
        """Find what is wrong with code, and correct it. Its event is `generation.complete` with `kind` `debug`."""
        answer: AssistDebugResponse = self._call("POST", "/v1/blurs/debug", body=body, timeout=LONG, bearer=api_key)
        return answer

    def optimize(self, *, api_key: str, **body: Unpack[AssistOptimizeRequest]) -> AssistOptimizeResponse:
        """Make code faster, smaller to deliver, or easier on the database. Its event is `optimization.complete`."""
        answer: AssistOptimizeResponse = self._call(
            "POST", "/v1/blurs/optimize", body=body, timeout=LONG, bearer=api_key
        )
        return answer
