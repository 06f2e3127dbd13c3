"""Responses are JSON whatever the Accept header says; raw file bytes are chosen by the views that offer them."""

from __future__ import annotations

from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request


class JSONAlways(BaseContentNegotiation):
    """The negotiation that refuses no request for its Accept header."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        media_type = (request.content_type or "application/json").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == media_type), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> tuple[Any, str]:
        return renderers[0], renderers[0].media_type
