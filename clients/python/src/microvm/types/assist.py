"""Code assistance, with an API key.

Written by `make client`. Answers may have further fields.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class AssistGenerateRequest(TypedDict):
    """Body, or a part of it, of `assist.generate`."""

    webhook_url: NotRequired[str]
    events: NotRequired[list[str]]
    prompt: str
    language: NotRequired[str]
    framework: NotRequired[str]
    context: NotRequired[str]


class AssistGenerateResponse(TypedDict):
    """Answer, or a part of one, of `assist.generate`."""

    code: str
    explanation: str
    suggestions: list[str]


class AssistDebugRequest(TypedDict):
    """Body, or a part of it, of `assist.debug`."""

    webhook_url: NotRequired[str]
    events: NotRequired[list[str]]
    code: str
    error: NotRequired[str]
    context: NotRequired[str]


class AssistDebugResponse(TypedDict):
    """Answer, or a part of one, of `assist.debug`."""

    analysis: str
    fix: str
    explanation: str
    prevention: str


class AssistOptimizeRequest(TypedDict):
    """Body, or a part of it, of `assist.optimize`."""

    webhook_url: NotRequired[str]
    events: NotRequired[list[str]]
    code: str
    type: Literal["performance", "bundle", "database"]
    metrics: NotRequired[AssistMetrics]


class AssistMetrics(TypedDict):
    """Body, or a part of it, of `assist.optimize`."""

    current: NotRequired[Any]
    target: NotRequired[Any]


class AssistOptimizeResponse(TypedDict):
    """Answer, or a part of one, of `assist.optimize`."""

    analysis: str
    optimizations: list[AssistOptimization]


class AssistOptimization(TypedDict):
    """Answer, or a part of one, of `assist.optimize`."""

    type: str
    code: str
    improvement: str
    explanation: str
