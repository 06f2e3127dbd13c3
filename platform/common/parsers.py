"""The request body: one JSON object, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser

from common import errors
from common.body_rules import body_limit
from common.json_objects import parse_object


class ObjectParser(BaseParser):
    """A strict parser of `application/json`.

    Refused with invalid_json: broken JSON or UTF-8, NaN and infinities, nesting deeper than MAX_DEPTH, more than
    MAX_TOKENS. A validation_error are a body that is no object, and NUL characters and lone surrogates in any field, as
    no database stores them. An empty body is an empty object. Bodies above the route's limit are payload_too_large,
    also without a Content-Length.
    """

    media_type = "application/json"
    allow_nul = False

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
        return parse_object(raw, allow_nul=self.allow_nul)


class UnstoredObjectParser(ObjectParser):
    """The same for bodies of which nothing goes to a database, such as texts of files: NUL characters are accepted."""

    allow_nul = True
