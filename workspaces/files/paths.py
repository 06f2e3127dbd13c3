"""Paths inside the guest, in requests and responses.

Names there are bytes. A path that is not UTF-8 is shown with replacement characters and, in another field, as its
percent-encoded bytes, which a query accepts like any path.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl, quote_from_bytes

from django.http import HttpRequest

from common.errors import ValidationError

MAX_PATH = 4096
MAX_QUERY_FIELDS = 100


def query_path(request: HttpRequest, default: str = "") -> str:
    """Return `path` of the query; bytes that are not UTF-8 are surrogates in it. Raise ValidationError."""
    query = request.META.get("QUERY_STRING", "")
    try:
        fields = parse_qsl(query, errors="surrogateescape", max_num_fields=MAX_QUERY_FIELDS)
    except ValueError as exc:
        raise ValidationError("The query has too many fields.") from exc
    values = [value for name, value in fields if name == "path"]
    return _checked(values[-1] if values else default, "surrogateescape")


def checked_path(path: Any) -> str:
    """Return `path` of a JSON body, which has characters only. Raise ValidationError."""
    return _checked(path, "strict")


def _checked(path: Any, errors: str) -> str:
    if not isinstance(path, str) or not path.startswith("/") or len(path) > MAX_PATH or not _is_path(path, errors):
        raise ValidationError(details={"path": [f"An absolute path of at most {MAX_PATH} characters is required."]})
    return path


def _is_path(path: str, errors: str) -> bool:
    """Return whether a path can be encoded, and has no NUL byte."""
    try:
        return b"\0" not in path.encode("utf-8", errors)
    except UnicodeEncodeError:
        return False


def displayed_path(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def encoded_path(path: str) -> str | None:
    """Return the percent-encoded bytes of a path that is not UTF-8, else None."""
    return None if displayed_path(path) == path else quote_from_bytes(path.encode("utf-8", "surrogateescape"))


def query_mode(request: HttpRequest) -> int | None:
    """Return the permission bits that a query gives in octal, or None if it gives none. Raise ValidationError."""
    text = request.GET.get("mode")
    if text is None:
        return None
    if not re.fullmatch(r"0?[0-7]{3}", text):
        raise ValidationError(details={"mode": ["Give permission bits in octal, from 0000 to 0777."]})
    return int(text, 8)
