"""The request body: one JSON object, or nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser

from common import errors
from common.streaming_body import body_limit


class ObjectParser(BaseParser):
    """Parses `application/json` strictly.

    Refused with invalid_json: broken JSON or UTF-8, NaN and infinities, NUL characters and lone surrogates (no
    database stores them), nesting too deep to read. An empty body is an empty object. A body that is no object is a
    validation_error. Bodies above the route's limit are payload_too_large, also without a Content-Length.
    """

    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        request = (parser_context or {})["request"]
        limit = body_limit(request.method, request.path)
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            raise errors.PayloadTooLarge(f"At most {limit} bytes are accepted here.")
        return parse_object(raw)


def parse_object(raw: bytes) -> dict[str, Any]:
    """Bytes of a body to the object they hold. Raises InvalidJson, ValidationError."""
    if not raw.strip():
        return {}
    try:
        text = raw.decode("utf-8-sig")
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if "\\u0000" in text or "\\ud" in text.lower() or "\0" in text:
            _storable(value)
    except (ValueError, RecursionError) as exc:
        raise errors.InvalidJson(f"The body is not valid JSON: {_reason(exc)}.") from exc
    if not isinstance(value, dict):
        raise errors.ValidationError("The body must be a JSON object.")
    return value


def _reason(exc: Exception) -> str:
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    if isinstance(exc, UnicodeDecodeError):
        return "it is not UTF-8"
    return str(exc)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is out of range")
    return value


def _storable(value: Any) -> None:
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("it holds a NUL character")
        value.encode()  # UnicodeEncodeError is a ValueError: a lone surrogate
    elif isinstance(value, dict):
        for key, item in value.items():
            _storable(key)
            _storable(item)
    elif isinstance(value, list):
        for item in value:
            _storable(item)
